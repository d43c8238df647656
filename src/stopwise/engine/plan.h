// What a policy gives its learner, and what follows from it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "features.h"
#include "history.h"
#include "rule.h"

namespace stopwise {

inline constexpr std::size_t kMaxArms = 15;  // outputs arrive as codes of four bits
inline constexpr double kLargest = 1.001;    // |φ_c| ≤ 1, with room for rounding

struct Options {
    std::shared_ptr<const Rule> rule;
    std::size_t n_arms;
    std::vector<double> gaps;      // (n_arms, n_arms): C_j − C_i
    std::optional<double> ridge;   // the precision of the prior; by default that of the features
    std::optional<std::int64_t> forced_rounds;  // none: until V has seen every direction
    bool transitive;     // whether (i, k) and (k, j) won win (i, j)
    double explore;      // the share of rounds that go to the last arm at random, at the beginning
    double labels;       // how many labels to ask for; below 1: of what share of rounds; 0: none
    std::uint64_t seed;  // of answers drawn, of labels asked for and of exploration
    double rate;         // of forgetting: a round that is k rounds old counts for e^{−rate·k}
    std::optional<std::size_t> most_rows;  // to store, of those that are not counted

    std::size_t last() const { return n_arms - 1; }
    std::size_t n_pairs() const { return n_arms * (n_arms - 1) / 2; }
    // The number of pair (i, j), i < j, row by row.
    std::size_t pair(std::size_t i, std::size_t j) const {
        return i * (2 * n_arms - i - 1) / 2 + j - i - 1;
    }
    double gap(std::size_t i, std::size_t j) const { return gaps[i * n_arms + j]; }
    // A question for each pair of arms or, for a rule of arms, for each arm.
    std::size_t n_questions() const { return rule->of_arms() ? n_arms : n_pairs(); }
};

// The options, and the questions as the features answer them.
struct Plan : Options {
    Plan(const Options& options, const FeatureMaps& maps);

    std::size_t width;                   // of a row of features
    double n_features = 0.0;             // the most that any question has
    std::vector<std::size_t> questions;  // of each question its number of V
    std::vector<Scope> grams;            // of each V what it and its questions read
    std::vector<double> thresholds;      // of each pair, its gap in the units of the rule
    double precision;                    // of the prior: the ridge

    const Scope& scope_of(std::size_t question) const { return grams[questions[question]]; }
    // Whether stages reveal the context: then rounds that stopped before the last arm count for it.
    bool reveals() const { return reveals_; }
    std::vector<std::size_t> answered_from() const;

private:
    bool reveals_;
};

// One round that ended. ``answers`` holds for each question 0 or 1, whether the pair disagreed or the
// arm was wrong; those of arms beyond the stop are not read.
struct Observation {
    std::size_t stop;
    std::size_t rule_stop;  // where the rule itself would have stopped, at most ``stop``
    const unsigned char* answers;
    bool may_ask;  // whether the label of the round may be asked for
};

}  // namespace stopwise
