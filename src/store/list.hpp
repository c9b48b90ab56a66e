// An array that grows, in memory of the transaction.
#pragma once

#include "pg/pg.hpp"

namespace idem::store {

// Goes with the transaction: to be emptied when that ends. What add() returned is valid until the next call of it.
template <typename T>
struct List {
    T* items = nullptr;
    int size = 0;
    int room = 0;

    T& add() {
        if (size == room) {
            const int wanted = room == 0 ? 8 : room * 2;
            const Size bytes = static_cast<Size>(wanted) * sizeof(T);
            items = static_cast<T*>(items == nullptr ? MemoryContextAllocHuge(TopTransactionContext, bytes)
                                                     : repalloc_huge(items, bytes));
            room = wanted;
        }
        items[size] = T{};
        return items[size++];
    }
};

} // namespace idem::store
