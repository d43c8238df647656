// Rounds without contexts: how often each arm was revealed, how often each pair disagreed.
//
// Pairs are numbered row by row, as everywhere. USS-UCB and USS-TS turn the counts into an upper
// value per pair; the stopping test is that of USS-PD.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "random.h"

namespace stopwise {

class PairCounts {
public:
    PairCounts(std::size_t n_arms, std::vector<double> gaps, std::uint64_t seed);

    // The stop of USS-UCB: index_ij = p̂_ij + √(a·ln t / n_j), ∞ while arm j was never revealed.
    // ``noted`` gets p̂ of every pair, then the upper values.
    std::size_t decide_ucb(double a, double* noted) const;

    // The stop of USS-TS: q_ij ~ Beta(1 + disagreements, 1 + agreements). Every pair is drawn, in
    // order, wherever the stop is.
    std::size_t decide_ts(double* noted);

    // Count a round that went to ``stop``; of ``differ``, a value a pair, no more is read.
    void learn(std::size_t stop, const unsigned char* differ);

    std::int64_t rounds = 0;
    std::vector<std::int64_t> revealed;   // (K,)
    std::vector<std::int64_t> disagreed;  // (n_pairs,)
    Random random;

    std::size_t n_arms() const { return n_arms_; }
    std::size_t n_pairs() const { return disagreed.size(); }

private:
    std::size_t first_winner(const double* upper) const;

    std::size_t n_arms_;
    std::vector<double> gaps_;  // of each pair
};

}  // namespace stopwise
