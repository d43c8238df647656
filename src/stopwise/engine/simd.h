// SIMD vectors of four doubles. Compilers use the widest instructions that are allowed; results are
// bit-identical with all of them.
//
// Only kernels.cpp includes this file. It is compiled once per instruction set, each in its own
// namespace, so that the linker cannot merge functions of different sets.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "link.h"

namespace stopwise::STOPWISE_KERNELS {

inline constexpr std::size_t kLanes = 4;

#if defined(__GNUC__)
using Lanes = double __attribute__((vector_size(32)));
using Bits = std::int64_t __attribute__((vector_size(32)));

inline Lanes broadcast(double x) { return Lanes{x, x, x, x}; }
inline Lanes select(Bits condition, Lanes yes, Lanes no) {
    return (Lanes)(((Bits)yes & condition) | ((Bits)no & ~condition));
}
inline Lanes lane_min(Lanes a, Lanes b) { return select(a < b, a, b); }
inline Lanes lane_max(Lanes a, Lanes b) { return select(a > b, a, b); }
inline Lanes lane_abs(Lanes a) { return (Lanes)((Bits)a & 0x7fffffffffffffffLL); }
// value·2^k, where k is the integer in the low bits of ``shifted``
inline Lanes scaled(Lanes value, Lanes shifted) {
    return (Lanes)((Bits)value + ((Bits)shifted << 52));
}
inline Lanes select_negative(Lanes z, Lanes yes, Lanes no) {
    return select(z < broadcast(0.0), yes, no);
}
#else  // compilers without vector types: plain loops with the same arithmetic
struct Lanes {
    double v[4];
    double operator[](std::size_t k) const { return v[k]; }
};
template <class Operation>
inline Lanes each(Operation operation) {
    return Lanes{{operation(0), operation(1), operation(2), operation(3)}};
}
inline Lanes broadcast(double x) { return Lanes{{x, x, x, x}}; }
inline Lanes operator+(Lanes a, Lanes b) { return each([&](int k) { return a.v[k] + b.v[k]; }); }
inline Lanes operator-(Lanes a, Lanes b) { return each([&](int k) { return a.v[k] - b.v[k]; }); }
inline Lanes operator*(Lanes a, Lanes b) { return each([&](int k) { return a.v[k] * b.v[k]; }); }
inline Lanes operator/(Lanes a, Lanes b) { return each([&](int k) { return a.v[k] / b.v[k]; }); }
inline Lanes& operator+=(Lanes& a, Lanes b) { return a = a + b; }
inline Lanes& operator-=(Lanes& a, Lanes b) { return a = a - b; }
inline Lanes lane_min(Lanes a, Lanes b) {
    return each([&](int k) { return a.v[k] < b.v[k] ? a.v[k] : b.v[k]; });
}
inline Lanes lane_max(Lanes a, Lanes b) {
    return each([&](int k) { return a.v[k] > b.v[k] ? a.v[k] : b.v[k]; });
}
inline Lanes lane_abs(Lanes a) { return each([&](int k) { return std::fabs(a.v[k]); }); }
inline Lanes scaled(Lanes value, Lanes shifted) {
    return each([&](int k) {
        std::uint64_t bits, power;
        std::memcpy(&bits, &value.v[k], sizeof bits);
        std::memcpy(&power, &shifted.v[k], sizeof power);
        bits += power << 52;
        double result;
        std::memcpy(&result, &bits, sizeof result);
        return result;
    });
}
inline Lanes select_negative(Lanes z, Lanes yes, Lanes no) {
    return each([&](int k) { return z.v[k] < 0.0 ? yes.v[k] : no.v[k]; });
}
#endif

inline Lanes load(const double* from) {
    Lanes lanes;
    std::memcpy(&lanes, from, sizeof lanes);
    return lanes;
}

inline void store(double* to, Lanes lanes) { std::memcpy(to, &lanes, sizeof lanes); }

inline double sum(Lanes a) { return (a[0] + a[1]) + (a[2] + a[3]); }

inline double largest(Lanes a) {
    const double first = a[0] > a[1] ? a[0] : a[1];
    const double second = a[2] > a[3] ? a[2] : a[3];
    return first > second ? first : second;
}

// e^x for x ≤ 0, as `stopwise::exp`, with x clamped to −708.
inline Lanes exp_of_negative(Lanes x) {
    using namespace exponential;
    x = lane_max(x, broadcast(kLeast));
    const Lanes shifted = x * broadcast(kLog2E) + broadcast(kRound);
    const Lanes k = shifted - broadcast(kRound);
    const Lanes r = (x - k * broadcast(kLn2High)) - k * broadcast(kLn2Low);
    const Lanes r2 = r * r;
    Lanes even = broadcast(kTaylor[10]);
    Lanes odd = broadcast(kTaylor[11]);
    for (int n = 8; n >= 0; n -= 2) {
        even = even * r2 + broadcast(kTaylor[n]);
        odd = odd * r2 + broadcast(kTaylor[n + 1]);
    }
    return scaled(broadcast(1.0) + (r + r2 * (even + r * odd)), shifted);
}

}  // namespace stopwise::STOPWISE_KERNELS
