#include "random.h"

#include <cmath>

#include "link.h"

namespace stopwise {

namespace {

std::uint64_t rotate(std::uint64_t x, int by) { return x << by | x >> (64 - by); }

}  // namespace

Random::Random(std::uint64_t seed) {
    for (std::uint64_t& word : state_) {  // splitmix64
        seed += 0x9e3779b97f4a7c15ULL;
        std::uint64_t z = seed;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ULL;
        z = (z ^ z >> 27) * 0x94d049bb133111ebULL;
        word = z ^ z >> 31;
    }
}

std::uint64_t Random::next() {
    const std::uint64_t result = rotate(state_[0] + state_[3], 23) + state_[0];
    const std::uint64_t t = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= t;
    state_[3] = rotate(state_[3], 45);
    return result;
}

double Random::uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }

// Marsaglia's polar method. Drops the second number of each pair, so that the state remains
// four words.
double Random::normal() {
    for (;;) {
        const double u = 2.0 * uniform() - 1.0, v = 2.0 * uniform() - 1.0;
        const double s = u * u + v * v;
        if (s < 1.0 && s > 0.0) return u * std::sqrt(-2.0 * log(s) / s);
    }
}

// Marsaglia and Tsang (2000): rejection sampling of d·(1 + c·x)³ with normal x.
double Random::gamma(double shape) {
    const double d = shape - 1.0 / 3.0;
    const double c = 1.0 / std::sqrt(9.0 * d);
    for (;;) {
        const double x = normal();
        const double t = 1.0 + c * x;
        if (t <= 0.0) continue;
        const double v = t * t * t;
        const double u = uniform();
        if (u < 1.0 - 0.0331 * (x * x) * (x * x)) return d * v;
        if (u > 0.0 && log(u) < 0.5 * x * x + d * (1.0 - v + log(v))) return d * v;
    }
}

double Random::beta(double a, double b) {
    const double x = gamma(a);
    return x / (x + gamma(b));
}

}  // namespace stopwise
