// Serialisation of a learner as consecutive little-endian numbers. The same `serialize` function of
// a class writes and reads, so that both always agree; every number read is checked.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

namespace stopwise {

// The bytes are not a valid learner.
struct BadArchive : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// A limit for counts, far below the overflow of integers and the precision of doubles.
inline constexpr std::int64_t kMaxCount = std::int64_t{1} << 52;

class Archive {
public:
    Archive() = default;  // writes to ``bytes``
    Archive(const unsigned char* from, std::size_t size) : from_(from), left_(size) {}
    std::vector<unsigned char> bytes;

    bool reading() const { return from_ != nullptr; }

    template <class T>
    void pass(T* values, std::size_t n) {
        if (reading()) {
            if (n > left_ / sizeof(T)) throw BadArchive("truncated");
            if (n > 0) std::memcpy(values, from_, n * sizeof(T));
            from_ += n * sizeof(T);
            left_ -= n * sizeof(T);
        } else {
            const auto* first = reinterpret_cast<const unsigned char*>(values);
            bytes.insert(bytes.end(), first, first + n * sizeof(T));
        }
    }
    // An integer from 0 to ``limit``.
    template <class Integer>
    void count(Integer& value, std::int64_t limit, const char* name) {
        auto n = static_cast<std::int64_t>(value);
        pass(&n, 1);
        check(n >= 0 && n <= limit, name);
        value = static_cast<Integer>(n);
    }
    // Numbers in [low, high], not NaN.
    void between(double* values, std::size_t n, double low, double high, const char* name) {
        pass(values, n);
        for (std::size_t k = 0; k < n; ++k) check(values[k] >= low && values[k] <= high, name);
    }
    void check(bool valid, const char* name) const {
        if (reading() && !valid) throw BadArchive(std::string("invalid ") + name);
    }
    // The maximum number of items of this size in the unread bytes, so that an invalid count does
    // not cause a large allocation.
    std::int64_t max_items(std::size_t bytes_each) const {
        return static_cast<std::int64_t>(left_ / bytes_each);
    }
    void end() const {
        if (left_ != 0) throw BadArchive("unexpected bytes at the end");
    }

private:
    const unsigned char* from_ = nullptr;
    std::size_t left_ = 0;
};

}  // namespace stopwise
