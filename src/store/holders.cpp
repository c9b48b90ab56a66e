#include "store/holders.hpp"

#include "pg/compat.hpp"
#include "pg/shared.hpp"

extern "C" {
#include "port/atomics.h"
#include "storage/ipc.h"
}

namespace idem::store {

namespace {

// `version` is odd while it is being written.
struct Part {
    pg_atomic_uint32 version;
    int used;
    Holder holder;
};

constinit void* memory = nullptr;
constinit bool cleans_up = false; // the callback at the end of the session is registered

Part& part(int number) {
    return static_cast<Part*>(memory)[number];
}

Size size() {
    return mul_size(static_cast<Size>(MaxBackends), sizeof(Part));
}

void init_parts(void* area) {
    for (int i = 0; i < MaxBackends; i++) {
        pg_atomic_init_u32(&static_cast<Part*>(area)[i].version, 0);
    }
}

constexpr pg::SharedArea area = {"pg_idem holders", size, init_parts, &memory};

// Nothing in `write` may fail: whoever reads would wait for the end of it.
template <typename Write>
void write_part(Write write) noexcept {
    Part& mine = part(pg::compat::my_backend_number());
    const uint32 before = pg_atomic_read_u32(&mine.version);
    pg_atomic_write_u32(&mine.version, before + 1);
    pg_write_barrier();
    write(mine);
    pg_write_barrier();
    pg_atomic_write_u32(&mine.version, before + 2);
}

// A session ends its transaction before it goes, also when it is terminated. This is for what we do not think of.
void at_exit(int, Datum) {
    hide_all_claims();
}

} // namespace

int show_claim(const core::Identity& identity, core::Time claimed_at) noexcept {
    if (memory == nullptr || pg::compat::my_backend_number() >= MaxBackends) {
        return not_shown;
    }
    if (!cleans_up) {
        on_shmem_exit(at_exit, Datum{0});
        cleans_up = true;
    }
    const Part& mine = part(pg::compat::my_backend_number());
    if (mine.used == shown_claims) {
        return not_shown;
    }
    int place = 0;
    while (mine.holder.claims[place].used) {
        place++;
    }
    write_part([&](Part& p) {
        p.holder.pid = MyProcPid;
        p.holder.database = MyDatabaseId;
        p.holder.claims[place] = {core::StoredIdentity(identity), claimed_at, true};
        p.used++;
    });
    return place;
}

void hide_claim(int place) noexcept {
    write_part([&](Part& p) {
        p.holder.claims[place].used = false;
        p.used--;
    });
}

void hide_all_claims() noexcept {
    if (memory == nullptr || !cleans_up || part(pg::compat::my_backend_number()).used == 0) {
        return;
    }
    write_part([](Part& p) {
        for (ShownClaim& claim : p.holder.claims) {
            claim.used = false;
        }
        p.used = 0;
    });
}

int holder_count() {
    return memory == nullptr ? 0 : MaxBackends;
}

bool read_holder(int number, Holder& holder) {
    Part& other = part(number);
    for (;;) {
        CHECK_FOR_INTERRUPTS();
        const uint32 before = pg_atomic_read_u32(&other.version);
        pg_read_barrier();
        const bool shows = other.used > 0 && other.holder.database == MyDatabaseId;
        if (shows) {
            holder = other.holder;
        }
        pg_read_barrier();
        if (before % 2 == 0 && pg_atomic_read_u32(&other.version) == before) {
            return shows;
        }
    }
}

void init_holders() {
    pg::add_shared_area(area);
}

} // namespace idem::store
