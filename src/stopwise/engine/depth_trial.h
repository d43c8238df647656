// The rule on trial against fixed depths, by labels.
//
// From 2ᵏ to 2ᵏ⁺¹ rounds the rule is on trial. If stopping every round at one arm is better with
// confidence, the next 2ᵏ⁺¹ rounds stop there (docs/labels.md).
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

    // The arm at which every round stops now, if there is one.
    std::optional<std::size_t> fixed() const { return fixed_; }

    // End the trial after so many rounds, if they are a power of two, and begin the next.
    void advance(std::int64_t rounds, const PendingLabels& requests);

    // Count what each depth costs beyond a stop of the rule.
    void add_costs(std::size_t rule_stop);
    void count_request() { ++requested_; }

    // Learn from a label that was asked for: which of the ``n`` arms that ran were right.
    void learn(const LabelRequest& request, std::size_t n, std::size_t rule_stop,
               const unsigned char* right);

    void serialize(Archive& archive);

private:
    // What stopping every round at one arm would have lost beyond what the rule loses, in all:
    // exactly for the costs, and for the errors by labels, each for as many rounds as one that was
    // asked for speaks for (Horvitz and Thompson).
    struct Depth {
        double cost = 0.0, errors = 0.0, variance = 0.0;
    };
    struct Sums {
        std::vector<Depth> depths;
        double heaviest;  // the most rounds that one label speaks for
    };

    // What a label says of every depth k: 1 if the rule was right and k wrong, −1 if the other way
    // round. ``losses`` has a number for each arm that ran.
    static void judge(Sums& sums, const LabelRequest& request, std::size_t rule_stop,
                      const std::vector<int>& losses);
    std::optional<std::size_t> better_depth(const PendingLabels& requests) const;

    std::shared_ptr<const Config> config_;
    std::optional<std::size_t> fixed_;
    Sums sums_;
    std::int64_t requested_ = 0, answered_ = 0;  // labels of this trial's rounds
    std::int64_t since_ = 0;                 // rounds before this trial
};

}  // namespace stopwise
