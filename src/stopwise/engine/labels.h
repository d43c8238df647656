// Label requests and learning from labels.
#pragma once

#include "depth_trial.h"
#include "exploration.h"
#include "pair_gains.h"
#include "pending_labels.h"

namespace stopwise {

// The label of a round in which ``n`` arms ran: which of them were ``right``. ``differ`` has, for
// each pair, whether its arms disagreed. ``request`` is the result of `Labels::request`, if any.
struct Label {
    std::size_t n, rule_stop;
    const unsigned char* right;
    const unsigned char* differ;
    std::optional<LabelRequest> request;
};

class Labels {
public:
    explicit Labels(std::shared_ptr<const Config> config);

    // The request for the label of a round after ``rounds`` others, if it is sampled.
    std::optional<LabelRequest> request(const Observation& round, std::int64_t rounds);
    // Store a request until its label arrives. ``row`` has the features as stored in the history.
    void expect(const LabelRequest& request, const Observation& round,
                const std::vector<double>& row);
    // Learn from a label. ``row`` has the features of the round.
    void learn(const double* row, const Label& label);

    const PairGains& gains() const { return gains_; }
    // The arm at which every round stops, if labels favour it over the rule.
    std::optional<std::size_t> fixed_depth() const { return trial_.fixed(); }

    std::int64_t learned() const { return learned_; }
    std::int64_t requested() const { return requested_; }
    std::int64_t missing() const { return requests_.missing(); }  // requested but not received
    std::size_t nbytes() const { return gains_.nbytes() + requests_.nbytes(); }
    void serialize(Archive& archive, std::int64_t rounds);

private:
    std::shared_ptr<const Config> config_;
    PairGains gains_;
    PendingLabels requests_;
    DepthTrial trial_;
    std::int64_t learned_ = 0, requested_ = 0;
    std::int64_t disagreed_ = 0;  // rounds with a disagreement of two arms
};

}  // namespace stopwise
