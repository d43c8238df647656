// Configuration of a learner: the options of a policy and the values derived from them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "features.h"
#include "history.h"
#include "rule.h"

namespace stopwise {

inline constexpr std::size_t kMaxArms = 15;   // outputs are passed as four-bit codes
inline constexpr double kMaxFeature = 1.001;  // |φ_c| ≤ 1, with a margin for rounding

struct Options {
    std::shared_ptr<const Rule> rule;
    std::size_t n_arms;
    std::vector<double> gaps;      // (n_arms, n_arms): C_j − C_i
    std::optional<double> ridge;   // precision of the prior; by default that of the features
    std::optional<std::int64_t> forced_rounds;  // by default until V has seen every direction
    bool transitive;     // whether winning (i, k) and (k, j) wins (i, j)
    double explore;      // initial probability that a round goes to the last arm at random
    double labels;       // number of labels to request, or below 1 the share of rounds; 0: none
    std::uint64_t seed;  // for drawn answers, label requests and exploration
    double rate;         // of forgetting: a round of age k has weight e^{−rate·k}
    std::optional<std::size_t> most_rows;  // maximum number of rows stored individually

    std::size_t last() const { return n_arms - 1; }
    std::size_t n_pairs() const { return n_arms * (n_arms - 1) / 2; }
    // The index of pair (i, j), i < j, row by row.
    std::size_t pair(std::size_t i, std::size_t j) const {
        return i * (2 * n_arms - i - 1) / 2 + j - i - 1;
    }
    double gap(std::size_t i, std::size_t j) const { return gaps[i * n_arms + j]; }
    // The number of regressions ("questions"): one per pair or, for a `per_arm` rule, one per arm.
    std::size_t n_questions() const { return rule->per_arm() ? n_arms : n_pairs(); }
};

// The options with the questions that they define and the data that each question reads.
struct Config : Options {
    Config(const Options& options, const FeatureMaps& maps);

    std::size_t width;                   // of a row of features
    double n_features = 0.0;             // the largest number of features of a question
    std::vector<std::size_t> questions;  // for each question, the index of its V
    std::vector<Scope> grams;            // for each V, the data that its questions read
    std::vector<double> thresholds;      // for each pair, its gap in the units of the rule
    double precision;                    // of the prior: the ridge

    const Scope& scope_of(std::size_t question) const { return grams[questions[question]]; }
    // Whether stages reveal the context. Then rounds with an earlier stop also count for later
    // arms.
    bool reveals() const { return reveals_; }
    std::vector<std::size_t> answered_from() const;

private:
    bool reveals_;
};

// A finished round. ``answers`` has 0 or 1 for each question: whether the pair disagreed or the arm
// was wrong. Entries of arms beyond the stop are not read.
struct Observation {
    std::size_t stop;
    std::size_t rule_stop;  // the stop of the rule, at most ``stop``
    const unsigned char* answers;
    bool may_request;  // whether the label of the round may be requested
};

}  // namespace stopwise
