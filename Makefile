# pg_idem: idempotency keys for PostgreSQL.
#
#   make && sudo make install      build and install for the PostgreSQL that PG_CONFIG belongs to (15 to 18)
#   make installcheck              pg_regress and isolation tests on the running server (needs no preload);
#                                  with TAP_TESTS=1 the TAP tests too (needs libipc-run-perl)
#
#   make check                     everything on throw-away servers: lint, unit tests, fuzzers, regress, isolation, TAP, model
#   make check-STAGE               one stage of it: lint unit fuzz regress isolation tap demo model; TESTS="a b" picks tests
#   make matrix                    the server stages again on the other supported major versions, in chroots (needs root)
#   make demo, make demo-stop      the example services
#   make format                    clang-format over the sources
#   make setup                     only install what the checks need

CHECK_STAGES = lint unit fuzz regress isolation tap demo model
DEV_GOALS = check $(addprefix check-,$(CHECK_STAGES)) matrix demo demo-stop format setup

ifneq (,$(filter $(DEV_GOALS),$(MAKECMDGOALS)))

# These must run on a machine where PostgreSQL is not installed yet, so PGXS is left out.
ifneq (,$(filter-out $(DEV_GOALS),$(MAKECMDGOALS)))
$(error call make separately for: $(filter-out $(DEV_GOALS),$(MAKECMDGOALS)))
endif

SHELL = /bin/bash
export PG_CONFIG TESTS
.NOTPARALLEL:
.PHONY: $(DEV_GOALS)

check:
	@scripts/setup.sh build lint unit server tap examples demo model
	@scripts/check.sh $(CHECK_STAGES)

check-lint:
	@scripts/setup.sh build lint unit
	@scripts/check.sh lint

check-unit check-fuzz:
	@scripts/setup.sh unit
	@scripts/check.sh $(@:check-%=%)

check-regress check-isolation:
	@scripts/setup.sh build server
	@scripts/check.sh $(@:check-%=%)

check-tap:
	@scripts/setup.sh build server tap examples
	@scripts/check.sh tap

check-demo:
	@scripts/setup.sh build server demo
	@scripts/check.sh demo

check-model:
	@scripts/setup.sh model
	@scripts/check.sh model

matrix:
	@scripts/matrix.sh

demo:
	@scripts/setup.sh build server demo
	@examples/demo/run

demo-stop:
	@examples/demo/stop

format:
	@scripts/setup.sh lint
	@scripts/format.sh

setup:
	@scripts/setup.sh

else

EXTENSION = pg_idem
MODULE_big = pg_idem
DATA = $(wildcard pg_idem--*.sql)
SOURCES = $(sort $(wildcard src/*.cpp src/*/*.cpp))
OBJS = $(SOURCES:.cpp=.o)

REGRESS = $(sort $(patsubst sql/%.sql,%,$(wildcard sql/*.sql)))
ISOLATION = $(sort $(patsubst test/isolation/specs/%.spec,%,$(wildcard test/isolation/specs/*.spec)))
# Databases of their own, in UTF8 and without a locale, whatever the server's are.
REGRESS_OPTS = --encoding=UTF8 --no-locale
ISOLATION_OPTS = $(REGRESS_OPTS) --inputdir=test/isolation
PROVE_TESTS = test/t/*.pl
PROVE_FLAGS = -I test/t

PG_CONFIG ?= pg_config
PG_MAJOR := $(shell $(PG_CONFIG) --version | sed 's/^PostgreSQL \([0-9]*\).*/\1/')
ifeq (,$(filter 15 16 17 18,$(PG_MAJOR)))
$(error pg_idem needs PostgreSQL 15, 16, 17 or 18, but $(PG_CONFIG) is of "$(shell $(PG_CONFIG) --version)")
endif

# The server's headers count as system headers: their warnings are not ours.
PG_CPPFLAGS = -Isrc -isystem $(shell $(PG_CONFIG) --includedir-server) -DFMT_HEADER_ONLY
# Before 16 PGDLLEXPORT is empty, and nothing asks for hidden visibility.
ifeq ($(PG_MAJOR),15)
PG_CPPFLAGS += -D'PGDLLEXPORT=__attribute__((visibility("default")))'
endif
PG_CXXFLAGS = -std=c++20 -fvisibility=hidden -fvisibility-inlines-hidden \
	-Wall -Wextra -Wshadow -Wno-register -Wno-unused-parameter -Wno-missing-field-initializers
ifdef WERROR
# Those two see what is not there in the headers of fmt (g++ 13).
PG_CXXFLAGS += -Werror $(if $(findstring clang,$(CXX)),,-Wno-error=array-bounds -Wno-error=stringop-overflow)
endif
# Templates of the standard library are exported whatever -fvisibility says; the linker script keeps them in.
ifeq ($(shell uname -s),Linux)
SHLIB_LINK = -Wl,--version-script=scripts/exports.map
endif

EXTRA_CLEAN = build $(OBJS:.o=.d)

PGXS := $(shell $(PG_CONFIG) --pgxs)
# No bitcode for the JIT: functions written in C++ are not inlined, and PGXS would compile it without our flags.
override with_llvm = no
override COMPILER = $(CXX) $(CXXFLAGS)
include $(PGXS)

%.o: %.cpp
	$(COMPILE.cc) -MMD -MP -MF $*.d -o $@ $<

# Another PostgreSQL, compiler or set of flags means compiling everything again.
BUILD_KEY := $(shell $(PG_CONFIG) --version) $(COMPILE.cc)
ifneq ($(shell cat build/key 2>/dev/null),$(strip $(subst ",,$(subst ',,$(BUILD_KEY)))))
$(shell mkdir -p build && echo '$(strip $(subst ",,$(subst ',,$(BUILD_KEY))))' >build/key)
endif
$(OBJS): build/key
build/key: ;
$(shlib): scripts/exports.map

-include $(OBJS:.o=.d)

endif
