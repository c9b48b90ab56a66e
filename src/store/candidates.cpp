#include "store/candidates.hpp"

#include "store/columns.hpp"
#include "store/datum.hpp"

namespace idem::store {

namespace {

void add(Candidates& found, int& room, const Candidate& candidate) {
    if (found.size == room) {
        room = room == 0 ? 64 : room * 2;
        const Size bytes = sizeof(Candidate) * static_cast<Size>(room);
        found.items = static_cast<Candidate*>(found.items == nullptr ? palloc(bytes) : repalloc(found.items, bytes));
    }
    found.items[found.size++] = candidate;
}

} // namespace

bool read_identity(TupleTableSlot* row, pg::TableId id, core::StoredIdentity& identity) {
    const AttrNumber first = key_of(id).first;
    std::string_view parts[3];
    const std::size_t limits[3] = {core::max_account_bytes, core::max_action_bytes, core::max_key_bytes};
    for (int i = 0; i < 3; i++) {
        bool is_null = false;
        const Datum value = slot_getattr(row, first + i, &is_null);
        if (is_null) {
            return false;
        }
        parts[i] = view_of(value);
        if (parts[i].size() > limits[i]) {
            return false;
        }
    }
    identity = core::StoredIdentity({parts[0], parts[1], parts[2]});
    return true;
}

void begin_circle(const pg::Table& table, core::Circle& circle) {
    if (circle.is_closed()) {
        circle.begin(pg::block_count(table));
    }
}

Candidates walk(const pg::Table& table, pg::TableId id, core::Circle& circle, int enough, std::uint32_t most_blocks,
                Judge judge, core::Time now) {
    Candidates found;
    found.before = circle;
    int room = 0;
    const std::uint32_t blocks = pg::block_count(table);
    for (std::uint32_t seen = 0; !circle.is_closed() && found.size < enough && seen < most_blocks; seen++) {
        CHECK_FOR_INTERRUPTS();
        circle.reading = true;
        if (circle.next < blocks) { // else the table has been truncated
            pg::BlockScan scan = pg::begin_block_scan(table, circle.next, 1);
            while (pg::next_row(scan)) {
                const RowDue due = judge(scan.slot, now);
                Candidate candidate;
                if (!due.now) {
                    circle.saw_due(due.later);
                } else if (read_identity(scan.slot, id, candidate.identity)) {
                    candidate.tid = scan.slot->tts_tid;
                    add(found, room, candidate);
                }
            }
            pg::end_block_scan(scan);
        }
        circle.reading = false;
        circle.step(blocks);
    }
    return found;
}

void go_back(const pg::Table& table, core::Circle& circle, const Candidates& found, int first_left) {
    const BlockNumber block = ItemPointerGetBlockNumber(&found.items[first_left].tid);
    const core::Time soonest = circle.soonest;
    const std::uint32_t blocks = pg::block_count(table);
    circle = found.before;
    circle.saw_due(soonest);
    while (circle.next != block && !circle.is_closed()) {
        circle.step(blocks);
    }
}

} // namespace idem::store
