#include "link.h"

#include <cmath>  // fabs and sqrt, which IEEE 754 defines to the bit
#include <cstdint>
#include <cstring>
#include <limits>

namespace stopwise {

namespace {

std::uint64_t bits_of(double x) {
    std::uint64_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
}

double from_bits(std::uint64_t bits) {
    double x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}

}  // namespace

double exp(double x) {
    using namespace exponential;
    if (!(x >= -746.0)) return x < 0.0 ? 0.0 : x;  // NaN stays NaN
    if (x > 709.0) return kInfinity;
    const double shifted = x * kLog2E + kRound;
    const double k = shifted - kRound;
    const double r = (x - k * kLn2High) - k * kLn2Low;
    const double r2 = r * r;
    double even = kTaylor[10];  // even and odd powers, in parallel
    double odd = kTaylor[11];
    for (int n = 8; n >= 0; n -= 2) {
        even = even * r2 + kTaylor[n];
        odd = odd * r2 + kTaylor[n + 1];
    }
    const double value = 1.0 + (r + r2 * (even + r * odd));
    if (x >= kLeast) return from_bits(bits_of(value) + (bits_of(shifted) << 52));
    // subnormal: computed via a normal number, so that it is rounded once
    return from_bits(bits_of(value) + ((bits_of(shifted) + 128) << 52)) * 0x1p-128;
}

double log(double x) {
    if (!(x > 0.0)) return x == 0.0 ? -kInfinity : std::numeric_limits<double>::quiet_NaN();
    if (x == kInfinity) return x;
    double exponent = 0.0;
    if (x < std::numeric_limits<double>::min()) {  // subnormal
        x *= 0x1p54;
        exponent = -54.0;
    }
    // x = 2^k·(1 + f) with 1 + f between √½ and √2
    std::uint64_t bits = bits_of(x) + (bits_of(1.0) - bits_of(0.70710678118654752440));
    exponent += static_cast<double>(static_cast<std::int64_t>(bits >> 52) - 1023);
    bits = (bits & 0x000fffffffffffffULL) + bits_of(0.70710678118654752440);
    const double f = from_bits(bits) - 1.0;
    // ln(1 + f) = 2·artanh(s) with s = f/(2 + f), arranged so that f enters without rounding
    const double s = f / (2.0 + f);
    const double s2 = s * s;
    double series = 0.0;
    for (int n = 23; n >= 3; n -= 2) series = (series + 2.0 / n) * s2;
    const double half = 0.5 * f * f;
    using namespace exponential;
    return exponent * kLn2High - ((half - (s * (half + series) + exponent * kLn2Low)) - f);
}

double log1p(double x) {
    const double u = 1.0 + x;
    if (u == 1.0) return x;
    if (u == kInfinity) return u;
    return log(u) * (x / (u - 1.0));  // the quotient corrects the rounding of 1 + x
}

double sigmoid(double z) {
    const double e = exp(-std::fabs(z));
    return (z >= 0.0 ? 1.0 : e) / (1.0 + e);
}

double logit(double p) {
    if (p <= 0.0) return -kInfinity;
    if (p >= 1.0) return kInfinity;
    return log(p) - log1p(-p);
}

}  // namespace stopwise
