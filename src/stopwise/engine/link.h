// The logistic link μ(z) = 1/(1 + e⁻ᶻ) and related functions, accurate for all finite arguments.
//
// The engine has its own exp, log and log1p, because those of C libraries differ in the last bit.
// Each is accurate to about one unit in the last place (tests/unit/engine/test_link.py).
#pragma once

#include <limits>

namespace stopwise {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

inline constexpr double kLn2 = 0.69314718055994530942;

double exp(double x);    // 0 below −746, +∞ above 709
double log(double x);    // x > 0
double log1p(double x);  // x > −1

// μ(z), without overflow.
double sigmoid(double z);

// μ⁻¹(p), extended to −∞ for p ≤ 0 and +∞ for p ≥ 1: cost gaps may lie outside (0, 1), and then
// "gap > μ(z)" and "logit(gap) > z" are the same test for every finite z.
double logit(double p);

// Constants of e^x = 2^k·e^r with r = x − k·ln 2 and |r| ≤ ln(2)/2. The Taylor series of e^r up to
// r¹³/13! has a relative error below 5e-18. Used by `exp` and by the vectorised version in simd.h.
namespace exponential {

inline constexpr double kLog2E = 1.4426950408889634074;
// ln 2 in two parts; the first ends in 32 zero bits, so that its product with k is exact.
inline constexpr double kLn2High = 6.93147180369123816490e-01;
inline constexpr double kLn2Low = 1.90821492927058770002e-10;
// Adding 1.5·2⁵² rounds to an integer, which is then in the low bits.
inline constexpr double kRound = 6755399441055744.0;
inline constexpr double kLeast = -708.0;  // e^x is a normal number down to here
// 1/k! for k = 2 … 13
inline constexpr double kTaylor[12] = {
    1.0 / 2,     1.0 / 6,      1.0 / 24,      1.0 / 120,      1.0 / 720,       1.0 / 5040,
    1.0 / 40320, 1.0 / 362880, 1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800.0,
};

}  // namespace exponential
}  // namespace stopwise
