// The stopping test: where a round with a given context stops.
#pragma once

#include <optional>
#include <vector>

#include "context_values.h"
#include "comparison.h"

namespace stopwise {

// The comparison of each pair, if it was made.
using Comparisons = std::vector<std::optional<Comparison>>;

class StoppingTest {
public:
    // Writes the comparisons that it makes to ``comparisons``, one per pair.
    StoppingTest(const Config& config, ContextValues& values, Workspace& workspace,
                 Comparisons& comparisons);

    // The first arm that passes, or the last.
    std::size_t stop();
    // Whether arm i passes: no deeper arm is worth its cost.
    bool passes(std::size_t i);
    // Compare all arms up to ``stop`` with all deeper arms.
    void compare_up_to(std::size_t stop);

private:
    Outcome wins(std::size_t i, std::size_t j);
    Outcome compare(std::size_t i, std::size_t j);

    const Config& config_;
    const Rule& rule_;
    ContextValues& values_;
    Comparisons& comparisons_;
    std::vector<Outcome>& outcomes_;  // of each pair
    std::vector<std::size_t>& beaten_by_;
};

}  // namespace stopwise
