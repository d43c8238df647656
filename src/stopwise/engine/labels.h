// Labels: which to ask for, and what they show.
#pragma once

#include "depth_trial.h"
#include "exploration.h"
#include "gains.h"
#include "waiting_labels.h"

namespace stopwise {

// The label of a round in which ``n`` arms ran: which of them were ``right``. ``differ`` holds for
// each pair whether its arms disagreed. The request is what `ask` returned, if it was asked for.
struct Label {
    std::size_t n, rule_stop;
    const unsigned char* right;
    const unsigned char* differ;
    std::optional<LabelRequest> request;
};

class Labels {
public:
    explicit Labels(std::shared_ptr<const Plan> plan);

    // Whether to ask for the label of a round, after so many others.
    std::optional<LabelRequest> ask(const Observation& round, std::int64_t rounds);
    // Remember a label that is asked for, until it comes. ``row`` are the features as they are stored.
    void expect(const LabelRequest& request, const Observation& round, const std::vector<double>& row);
    // ``row`` are the features of the round.
    void learn(const double* row, const Label& label);

    const Gains& gains() const { return gains_; }
    // The arm at which every round stops now, if labels show that this is better than the rule.
    std::optional<std::size_t> fixed_depth() const { return trial_.fixed(); }

    std::int64_t learned() const { return learned_; }
    std::int64_t asked() const { return asked_; }
    std::int64_t missing() const { return requests_.missing(); }  // of those asked for
    std::size_t nbytes() const { return gains_.nbytes() + requests_.nbytes(); }
    void archive(Archive& with, std::int64_t rounds);

private:
    std::shared_ptr<const Plan> plan_;
    Gains gains_;
    WaitingLabels requests_;
    DepthTrial trial_;
    std::int64_t learned_ = 0, asked_ = 0;
    std::int64_t disagreed_ = 0;  // rounds in which any two arms disagreed
};

}  // namespace stopwise
