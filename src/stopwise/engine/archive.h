// A learner as bytes: numbers one after another, little-endian; every one is checked when read back.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

namespace stopwise {

// The bytes do not describe a learner; the text says why.
struct BadArchive : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// More rounds than anybody plays, and far from where a count or a double would give out.
inline constexpr std::int64_t kMostCounted = std::int64_t{1} << 52;

class Writer {
public:
    template <class T>
    void put(const T& value) {
        put(&value, 1);
    }
    template <class T>
    void put(const T* values, std::size_t n) {
        const auto* from = reinterpret_cast<const unsigned char*>(values);
        bytes.insert(bytes.end(), from, from + n * sizeof(T));
    }
    std::vector<unsigned char> bytes;
};

class Reader {
public:
    Reader(const unsigned char* bytes, std::size_t size) : at_(bytes), left_(size) {}

    template <class T>
    T get() {
        T value;
        get(&value, 1);
        return value;
    }
    template <class T>
    void get(T* values, std::size_t n) {
        if (n > left_ / sizeof(T)) throw BadArchive("it is incomplete");
        if (n == 0) return;
        std::memcpy(values, at_, n * sizeof(T));
        at_ += n * sizeof(T);
        left_ -= n * sizeof(T);
    }
    void check(bool possible, const char* name) const {
        if (!possible) throw BadArchive(std::string("impossible: ") + name);
    }
    // A whole number from 0 to ``most``.
    std::int64_t count(std::int64_t most, const char* name) {
        const auto value = get<std::int64_t>();
        check(value >= 0 && value <= most, name);
        return value;
    }
    // Numbers, none of them NaN, all within [low, high].
    void between(double* values, std::size_t n, double low, double high, const char* name) {
        get(values, n);
        for (std::size_t k = 0; k < n; ++k) check(values[k] >= low && values[k] <= high, name);
    }
    // How many more items of so many bytes there can be: bounds what a bad count may allocate.
    std::size_t room(std::size_t bytes_each) const { return left_ / bytes_each; }
    void end() const {
        if (left_ != 0) throw BadArchive("it is longer than its counts say");
    }

private:
    const unsigned char* at_;
    std::size_t left_;
};

}  // namespace stopwise
