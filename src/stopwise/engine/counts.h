// Disagreement counts of the context-free policies USS-UCB and USS-TS.
//
// Pairs are numbered row by row. USS-UCB and USS-TS compute an upper value per pair from the
// counts; the stopping test is that of USS-PD.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "random.h"

namespace stopwise {

class PairCounts {
public:
    PairCounts(std::size_t n_arms, std::vector<double> gaps, std::uint64_t seed);

    // Return the first arm i with C_j − C_i > upper_ij for all j > i. With ``a``, the upper value
    // is that of USS-UCB, p̂_ij + √(a·ln t / n_j), ∞ until arm j is revealed. Without, it is that
    // of USS-TS, a draw from Beta(1 + disagreements, 1 + agreements); all pairs draw in order, also
    // those beyond the stop. Writes p̂ of every pair, then the upper values, to ``evidence``.
    std::size_t decide(std::optional<double> a, double* evidence);

    // Count a round that stopped at ``stop``. ``differ`` has one value per pair; entries of arms
    // beyond the stop are not read.
    void learn(std::size_t stop, const unsigned char* differ);

    std::int64_t rounds = 0;
    std::vector<std::int64_t> revealed;   // (K,)
    std::vector<std::int64_t> disagreed;  // (n_pairs,)
    Random random;

    std::size_t n_arms() const { return n_arms_; }
    std::size_t n_pairs() const { return disagreed.size(); }

private:
    std::size_t n_arms_;
    std::vector<double> gaps_;  // of each pair
};

}  // namespace stopwise
