// The learned state of a policy. A round is a call of `decide`, then `observe`, then optionally
// `label`.
//
// Batches call the same functions for every round, so the same events give the same decisions, bit
// for bit. A learner can be copied. It has no lock: callers must serialise access.
#pragma once

#include "drawn_answers.h"
#include "drift.h"
#include "first_rounds.h"
#include "labels.h"
#include "trace.h"

namespace stopwise {

// The state learned with a fixed set of feature maps.
class State {
public:
    State(const Options& options, FeatureMaps maps);

    // The stop of the rule for a row of features; fills the trace. ``number`` is the index of the
    // decision, which seeds its random draws.
    std::size_t rule_stop(const double* row, std::int64_t number, Trace& trace);
    // Whether the rule stops at ``arm``, where stages reveal the context.
    bool should_stop(const double* row, std::size_t arm, std::int64_t number, Trace& trace);
    // Whether the decision with this index explores.
    bool explores(std::int64_t number) const;
    // Whether the next round runs every arm for any context.
    bool forced() const;

    // Learn from a round; return the request for its label, if any.
    std::optional<LabelRequest> observe(const double* row, const Observation& round);
    void label(const double* row, const Label& label);
    // The same for contexts, which must be valid.
    void observe(const PartialContext& partial, const Observation& round) {
        observe(row_of(partial), round);
    }
    void label(const PartialContext& partial, const Label& label) {
        this->label(row_of(partial), label);
    }

    // Repeat the comparisons of arms up to ``stop`` with exact estimates, solved in copies of the
    // models. False if an estimate does not converge.
    bool exact_evidence(std::size_t stop, Trace& trace);

    // The number of rounds and labels learned.
    std::int64_t revision() const { return estimates_.rounds() + labels_.learned(); }
    const FeatureMaps& maps() const { return maps_; }
    const Config& config() const { return *config_; }
    Estimates& estimates() { return estimates_; }
    const Estimates& estimates() const { return estimates_; }
    const Labels& labels() const { return labels_; }
    std::size_t nbytes() const;
    void serialize(Archive& archive);

private:
    ContextValues values_of(const double* row, std::vector<double> noise = {});
    // A standard normal draw for each pair; empty if the rule uses no noise.
    std::vector<double> noise(std::int64_t number) const;
    const double* row_of(const PartialContext& partial);

    FeatureMaps maps_;
    std::shared_ptr<const Config> config_;
    Estimates estimates_;
    DrawnAnswers drawn_answers_;
    Labels labels_;
    Workspace workspace_;
    std::vector<double> row_;  // the result of `row_of`
};

// The result of learning from a round.
struct Learned {
    std::optional<LabelRequest> request;  // for its label
    std::vector<Change> changes;          // detected after the round
};

class Learner {
public:
    Learner(Options options, FeatureMaps maps);

    // Decide where a round with this context stops, and fill the trace. If the context is invalid,
    // return its first invalid coordinate and change nothing.
    std::optional<InvalidCoordinate> decide(const PartialContext& partial, Trace& trace);
    // The stop of the rule, without a trace. The context must be valid.
    std::size_t rule_stop(const PartialContext& partial);

    // For a round decided arm by arm: begin it, then call `should_stop` at each arm.
    void begin(Trace& trace);
    bool should_stop(const PartialContext& partial, std::size_t arm, Trace& trace);

    // Whether the next decision explores.
    bool explore() { return state_.explores(next_number()); }

    // Learn from a round; its context may include coordinates beyond the stop. If the context is
    // invalid, return nothing and change nothing.
    std::optional<Learned> observe(const PartialContext& partial, const Observation& round);
    // The same for the round just decided, whose features are in the trace.
    Learned observe_decided(const PartialContext& partial, const Trace& trace,
                            const Observation& round);
    // Learn from a label; false if the context is invalid.
    bool label(const PartialContext& partial, const Label& label);
    // Start detecting changes.
    void watch();

    std::optional<InvalidCoordinate> find_invalid(const PartialContext& partial) const {
        return maps().find_invalid(partial);
    }
    bool exact_evidence(std::size_t stop, Trace& trace) {
        return state_.exact_evidence(stop, trace);
    }
    // θ̂ of a question; empty if the solver does not converge.
    std::vector<double> theta(std::size_t question);
    Factor gram(std::size_t question);

    const Options& options() const { return options_; }
    const FeatureMaps& maps() const { return state_.maps(); }
    const State& state() const { return state_; }
    std::int64_t rounds() const { return state_.estimates().rounds(); }
    // The number of fits of the maps; `restore` counts as a fit.
    std::int64_t fits() const { return fits_; }
    std::size_t nbytes() const;

    std::vector<unsigned char> save();
    // Restore the bytes of `save` into a learner with the same options and maps.
    void restore(const unsigned char* bytes, std::size_t size);

private:
    Learned learn(const double* row, const PartialContext& partial, const Observation& round);
    // The index of the next decision. Counts only if decisions use random draws.
    std::int64_t next_number();
    // Fit the maps to the first rounds, and learn these again.
    void fit();
    void serialize(Archive& archive);

    Options options_;
    State state_;
    std::optional<FirstRounds> first_rounds_;  // until the last fit of the maps
    std::optional<Drift> drift_;        // after `watch`
    std::int64_t decisions_ = 0;        // with random draws
    std::int64_t fits_ = 0;             // of the maps
    std::vector<double> row_;           // buffer
    Trace trace_;                       // buffer
};

}  // namespace stopwise
