// A learner as bytes: numbers one after another, little-endian. The same function of a class writes
// and reads it, so that the two cannot differ; every number that is read is checked.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

namespace stopwise {

// The bytes do not describe a learner; the text gives the reason.
struct BadArchive : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// More rounds than anybody plays, and far from where a count or a double would overflow.
inline constexpr std::int64_t kMostCounted = std::int64_t{1} << 52;

class Archive {
public:
    Archive() = default;  // to write ``bytes``
    Archive(const unsigned char* from, std::size_t size) : from_(from), left_(size) {}
    std::vector<unsigned char> bytes;

    bool reading() const { return from_ != nullptr; }

    template <class T>
    void pass(T* values, std::size_t n) {
        if (reading()) {
            if (n > left_ / sizeof(T)) throw BadArchive("it is incomplete");
            if (n > 0) std::memcpy(values, from_, n * sizeof(T));
            from_ += n * sizeof(T);
            left_ -= n * sizeof(T);
        } else {
            const auto* first = reinterpret_cast<const unsigned char*>(values);
            bytes.insert(bytes.end(), first, first + n * sizeof(T));
        }
    }
    // An integer from 0 to ``most``.
    template <class Integer>
    void count(Integer& value, std::int64_t most, const char* name) {
        auto n = static_cast<std::int64_t>(value);
        pass(&n, 1);
        check(n >= 0 && n <= most, name);
        value = static_cast<Integer>(n);
    }
    // Numbers, none of them NaN, all within [low, high].
    void between(double* values, std::size_t n, double low, double high, const char* name) {
        pass(values, n);
        for (std::size_t k = 0; k < n; ++k) check(values[k] >= low && values[k] <= high, name);
    }
    void check(bool possible, const char* name) const {
        if (reading() && !possible) throw BadArchive(std::string("impossible: ") + name);
    }
    // How many more items of so many bytes there can be: bounds what a bad count may allocate.
    std::int64_t room(std::size_t bytes_each) const {
        return static_cast<std::int64_t>(left_ / bytes_each);
    }
    void end() const {
        if (left_ != 0) throw BadArchive("it is longer than its counts");
    }

private:
    const unsigned char* from_ = nullptr;
    std::size_t left_ = 0;
};

}  // namespace stopwise
