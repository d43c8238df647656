// The stopping test: where a cascade stops at the context at hand.
#pragma once

#include <optional>
#include <vector>

#include "at.h"
#include "comparison.h"

namespace stopwise {

// For each pair the comparison that took place, if one did.
using Comparisons = std::vector<std::optional<Comparison>>;

class StoppingTest {
public:
    // ``comparisons`` gets those that take place, one per pair.
    StoppingTest(const Plan& plan, At& at, Workspace& workspace, Comparisons& comparisons);

    // The first arm that passes, or the last.
    std::size_t stop();
    // Whether arm i is worth stopping at: no deeper arm is worth its price.
    bool passes(std::size_t i);
    // Compare all arms up to ``stop`` with the deeper ones, whatever the verdicts.
    void compare_up_to(std::size_t stop);

private:
    Outcome wins(std::size_t i, std::size_t j);
    Outcome compare(std::size_t i, std::size_t j);

    const Plan& plan_;
    const Rule& rule_;
    At& at_;
    Comparisons& comparisons_;
    std::vector<Outcome>& outcomes_;  // of each pair
    std::vector<std::size_t>& beaten_by_;
};

}  // namespace stopwise
