// Portable random numbers: xoshiro256++ (Blackman and Vigna, 2019) seeded by splitmix64, with
// distributions that use the engine's own logarithm, so that streams are equal on every machine.
#pragma once

#include <array>
#include <cstdint>

namespace stopwise {

class Random {
public:
    explicit Random(std::uint64_t seed);

    std::uint64_t next();
    double uniform();  // in [0, 1)
    double normal();   // standard
    double gamma(double shape);  // shape ≥ 1, scale 1
    double beta(double a, double b);  // a, b ≥ 1

    const std::array<std::uint64_t, 4>& state() const { return state_; }
    void restore(const std::array<std::uint64_t, 4>& state) { state_ = state; }

private:
    std::array<std::uint64_t, 4> state_;
};

// Stream indices of the draws of a round or decision. Drawn answers use 1 to 222
// (drawn_answers.cpp).
inline constexpr std::size_t kLabelRequest = 0, kNoise = 254, kExploring = 255;

// The stream with an index below 256 in one round; it needs no stored state.
inline Random stream_of(std::uint64_t seed, std::int64_t round, std::size_t index) {
    return Random(seed * 0xd6e8feb86659fd93ULL + static_cast<std::uint64_t>(round) * 256 + index);
}

// The first number of that stream, in [0, 1).
inline double draw_of(std::uint64_t seed, std::int64_t round, std::size_t index) {
    return stream_of(seed, round, index).uniform();
}

}  // namespace stopwise
