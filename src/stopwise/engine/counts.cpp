#include "counts.h"

#include <cmath>
#include <limits>

#include "first_passing_arm.h"
#include "link.h"

namespace stopwise {

PairCounts::PairCounts(std::size_t n_arms, std::vector<double> gaps, std::uint64_t seed)
    : revealed(n_arms, 0), disagreed(n_arms * (n_arms - 1) / 2, 0), random(seed), n_arms_(n_arms) {
    for (std::size_t i = 0; i < n_arms; ++i) {
        for (std::size_t j = i + 1; j < n_arms; ++j) gaps_.push_back(gaps[i * n_arms + j]);
    }
}

std::size_t PairCounts::decide(std::optional<double> a, double* evidence) {
    double* const upper = evidence + n_pairs();
    const double strength = a ? *a * log(static_cast<double>(rounds) + 1.0) : 0.0;
    std::size_t k = 0;
    for (std::size_t i = 0; i < n_arms_; ++i) {
        for (std::size_t j = i + 1; j < n_arms_; ++j, ++k) {
            const auto n = static_cast<double>(revealed[j]);
            const auto disagreements = static_cast<double>(disagreed[k]);
            evidence[k] = disagreements / n;
            if (!a) {
                upper[k] = random.beta(1.0 + disagreements, 1.0 + n - disagreements);
            } else {
                upper[k] = n > 0.0 ? evidence[k] + std::sqrt(strength / n)
                                   : std::numeric_limits<double>::infinity();
            }
        }
    }
    return first_passing_arm(n_arms_, [&](std::size_t i) {
        const std::size_t first = i * (2 * n_arms_ - i - 1) / 2;  // of the pairs (i, j)
        for (std::size_t pair = first; pair < first + n_arms_ - i - 1; ++pair) {
            if (!(gaps_[pair] > upper[pair])) return false;
        }
        return true;
    });
}

void PairCounts::learn(std::size_t stop, const unsigned char* differ) {
    ++rounds;
    std::size_t k = 0;
    for (std::size_t i = 0; i < n_arms_; ++i) {
        if (i <= stop) ++revealed[i];
        for (std::size_t j = i + 1; j < n_arms_; ++j, ++k) {
            if (j <= stop && differ[k] != 0) ++disagreed[k];
        }
    }
}

}  // namespace stopwise
