// Arrays of doubles that start at a multiple of 64 bytes, as wide loads like them.
#pragma once

#include <cstddef>
#include <new>
#include <vector>

namespace stopwise {

template <class T>
struct Aligned {
    using value_type = T;
    static constexpr std::align_val_t kAlignment{64};
    Aligned() = default;
    template <class U>
    Aligned(const Aligned<U>&) {}
    T* allocate(std::size_t n) {
        return static_cast<T*>(::operator new(n * sizeof(T), kAlignment));
    }
    void deallocate(T* p, std::size_t) { ::operator delete(p, kAlignment); }
    bool operator==(const Aligned&) const { return true; }
    bool operator!=(const Aligned&) const { return false; }
};

using Numbers = std::vector<double, Aligned<double>>;

}  // namespace stopwise
