// Comparison of the rule with fixed depths, by labels.
//
// The rule is on trial from 2ᵏ to 2ᵏ⁺¹ rounds. If always stopping at a certain arm is significantly
// better, the next 2ᵏ⁺¹ rounds stop there (docs/labels-method.md).
#pragma once

#include <optional>
#include <vector>

#include "pending_labels.h"
#include "config.h"

namespace stopwise {

class DepthTrial {
public:
    explicit DepthTrial(std::shared_ptr<const Config> config)
        : config_(std::move(config)), sums_{std::vector<Depth>(config_->n_arms), 0.0} {}

    // The arm at which every round currently stops, if any.
    std::optional<std::size_t> fixed() const { return fixed_; }

    // End the trial and begin the next if ``rounds`` is a power of two.
    void advance(std::int64_t rounds, const PendingLabels& requests);

    // Add the cost of each depth relative to the stop of the rule.
    void add_costs(std::size_t rule_stop);
    void count_request() { ++requested_; }

    // Learn from a requested label: which of the ``n`` arms that ran were right.
    void learn(const LabelRequest& request, std::size_t n, std::size_t rule_stop,
               const unsigned char* right);

    void serialize(Archive& archive);

private:
    // Total loss of always stopping at an arm, relative to the rule: exact for costs; for errors,
    // the Horvitz–Thompson estimate, which weights each label by 1/probability of its request.
    struct Depth {
        double cost = 0.0, errors = 0.0, variance = 0.0;
    };
    struct Sums {
        std::vector<Depth> depths;
        double heaviest;  // the largest weight of a label
    };

    // Add a label. ``losses`` has, for each arm k that ran, 1 if the rule was right and k wrong, −1
    // if k was right and the rule wrong, else 0.
    static void add_label(Sums& sums, const LabelRequest& request, std::size_t rule_stop,
                          const std::vector<int>& losses);
    std::optional<std::size_t> better_depth(const PendingLabels& requests) const;

    std::shared_ptr<const Config> config_;
    std::optional<std::size_t> fixed_;
    Sums sums_;
    std::int64_t requested_ = 0, answered_ = 0;  // labels of this trial's rounds
    std::int64_t since_ = 0;                 // rounds before this trial
};

}  // namespace stopwise
