#include <cstring>

#include "core/json_canonical.hpp"
#include "core/json_pointer.hpp"
#include "pg/json.hpp"

#include "pg/entry.hpp"

extern "C" {
#include "common/cryptohash.h"
#include "common/sha2.h"
#include "mb/pg_wchar.h"
#include "utils/numeric.h"
}

namespace idem::pg {

namespace {

constexpr unsigned char fingerprint_version = 1;

// A growing array of tokens in the current memory context.
struct Tape {
    core::JsonToken* tokens = nullptr;
    std::size_t size = 0;
    std::size_t room = 0;

    void add(core::JsonKind kind, const char* text = nullptr, std::size_t bytes = 0) {
        if (size == room) {
            room = room == 0 ? 64 : room * 2;
            const Size wanted = room * sizeof(core::JsonToken);
            tokens = static_cast<core::JsonToken*>(tokens == nullptr ? palloc_extended(wanted, MCXT_ALLOC_HUGE)
                                                                     : repalloc_huge(tokens, wanted));
        }
        tokens[size++] = {kind, text, bytes};
    }

    void add_text(core::JsonKind kind, const JsonbValue& value) {
        const char* text = value.val.string.val;
        int bytes = value.val.string.len;
        if (GetDatabaseEncoding() != PG_UTF8) {
            char* converted = pg_server_to_any(text, bytes, PG_UTF8);
            if (converted != text) {
                text = converted;
                bytes = static_cast<int>(std::strlen(converted));
            }
        }
        add(kind, text, bytes);
    }

    void add_scalar(const JsonbValue& value) {
        switch (value.type) {
        case jbvNull:
            add(core::JsonKind::null);
            break;
        case jbvBool:
            add(value.val.boolean ? core::JsonKind::boolean_true : core::JsonKind::boolean_false);
            break;
        case jbvNumeric: {
            const char* digits = DatumGetCString(DirectFunctionCall1(numeric_out, NumericGetDatum(value.val.numeric)));
            add(core::JsonKind::number, digits, std::strlen(digits));
            break;
        }
        case jbvString:
            add_text(core::JsonKind::string, value);
            break;
        default:
            elog(ERROR, "unexpected jsonb value type %d", static_cast<int>(value.type));
        }
    }
};

} // namespace

std::span<const core::JsonToken> tape_of(Jsonb* json) {
    Tape tape;
    JsonbIterator* it = JsonbIteratorInit(&json->root);
    JsonbValue value;
    bool scalar = false; // a lone scalar is stored as an array of one
    for (JsonbIteratorToken t = JsonbIteratorNext(&it, &value, false); t != WJB_DONE;
         t = JsonbIteratorNext(&it, &value, false)) {
        switch (t) {
        case WJB_BEGIN_ARRAY:
            scalar = scalar || value.val.array.rawScalar;
            if (!scalar) {
                tape.add(core::JsonKind::array_begin);
            }
            break;
        case WJB_END_ARRAY:
            if (!scalar) {
                tape.add(core::JsonKind::array_end);
            }
            break;
        case WJB_BEGIN_OBJECT:
            tape.add(core::JsonKind::object_begin);
            break;
        case WJB_END_OBJECT:
            tape.add(core::JsonKind::object_end);
            break;
        case WJB_KEY:
            tape.add_text(core::JsonKind::key, value);
            break;
        case WJB_ELEM:
        case WJB_VALUE:
            tape.add_scalar(value);
            break;
        case WJB_DONE:
            break;
        }
    }
    return {tape.tokens, tape.size};
}

void fingerprint_of(Jsonb* json, std::span<const std::string_view> ignore, unsigned char* out) {
    const std::span<const core::JsonToken> tape = tape_of(json);
    pg_cryptohash_ctx* hash = pg_cryptohash_create(PG_SHA256);

    struct Sink {
        pg_cryptohash_ctx* hash;
        bool failed;
    } sink = {hash, pg_cryptohash_init(hash) < 0};
    const core::ByteSink write = [](void* state, const char* bytes, std::size_t size) noexcept {
        auto* s = static_cast<Sink*>(state);
        s->failed |= pg_cryptohash_update(s->hash, reinterpret_cast<const uint8*>(bytes), size) < 0;
    };
    guarded([&] {
        core::canonicalize(tape, ignore, write, &sink);
        return 0;
    });

    out[0] = fingerprint_version;
    if (sink.failed || pg_cryptohash_final(hash, out + 1, PG_SHA256_DIGEST_LENGTH) < 0) {
        elog(ERROR, "could not compute SHA-256: %s", pg_cryptohash_error(hash));
    }
    pg_cryptohash_free(hash);
}

const char* json_text_at(const char* text, std::string_view pointer) {
    Jsonb* volatile json = nullptr;
    MemoryContext context = CurrentMemoryContext;
    PG_TRY();
    {
        json = DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum(text)));
    }
    PG_CATCH();
    {
        // Parsing changes nothing that a rollback would have to undo; a cancel is not swallowed.
        if (ERRCODE_TO_CATEGORY(geterrcode()) != ERRCODE_DATA_EXCEPTION) {
            PG_RE_THROW();
        }
        MemoryContextSwitchTo(context);
        FlushErrorState();
    }
    PG_END_TRY();
    if (json == nullptr) {
        return nullptr;
    }
    const std::span<const core::JsonToken> tape = tape_of(json);
    const std::size_t at = guarded([&] { return core::find_json_pointer(tape, pointer); });
    if (at >= tape.size() || (tape[at].kind != core::JsonKind::string && tape[at].kind != core::JsonKind::number)) {
        return nullptr;
    }
    char* found = pnstrdup(tape[at].text, tape[at].size);
    return pg_any_to_server(found, static_cast<int>(tape[at].size), PG_UTF8);
}

} // namespace idem::pg
