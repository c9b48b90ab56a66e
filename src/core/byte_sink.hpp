#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace idem::core {

// Called with successive pieces of an output; must not throw.
using ByteSink = void (*)(void* state, const char* bytes, std::size_t size) noexcept;

// Gathers small pieces so that the sink, often a hash, is called with few and large ones. What is gathered
// goes out when the buffer is full and on flush(); there is no flush on destruction, since an output that
// was broken off by an exception is of no use to anybody.
class BufferedSink {
public:
    BufferedSink(ByteSink sink, void* state) noexcept : sink_(sink), state_(state) {}
    BufferedSink(const BufferedSink&) = delete;
    BufferedSink& operator=(const BufferedSink&) = delete;

    void put(char byte) noexcept {
        if (used_ == capacity) {
            flush();
        }
        buffer_[used_++] = byte;
    }

    void put(std::string_view bytes) noexcept {
        if (bytes.size() > capacity - used_) {
            flush();
            if (bytes.size() > capacity) {
                sink_(state_, bytes.data(), bytes.size());
                return;
            }
        }
        std::copy_n(bytes.data(), bytes.size(), buffer_ + used_);
        used_ += bytes.size();
    }

    void flush() noexcept {
        if (used_ > 0) {
            sink_(state_, buffer_, used_);
            used_ = 0;
        }
    }

private:
    static constexpr std::size_t capacity = 4096;

    ByteSink sink_;
    void* state_;
    std::size_t used_ = 0;
    char buffer_[capacity]; // not initialised: only what was put is ever read
};

} // namespace idem::core
