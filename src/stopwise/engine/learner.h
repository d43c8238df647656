// The one owner of what a policy has learned: decide, observe, and perhaps label, are one round.
//
// Batches call the same functions for every round, so the same events give the same decisions, bit for
// bit. A learner can be copied. It has no lock: threads that share one must take turns.
#pragma once

#include "drawn_answers.h"
#include "drift.h"
#include "first_rounds.h"
#include "labels.h"
#include "trace.h"

namespace stopwise {

// What was learned with one set of feature maps.
class State {
public:
    State(const Options& options, FeatureMaps maps);

    // Where the rule stops by a row of features; fills the trace. Random draws follow from the number
    // of the decision.
    std::size_t rule_stop(const double* row, std::int64_t number, Trace& trace);
    // Whether the rule stops at an arm, where stages reveal the context.
    bool should_stop(const double* row, std::size_t arm, std::int64_t number, Trace& trace);
    // Whether a decision of this number goes to the last arm at random.
    bool explores(std::int64_t number) const;
    // Whether the next round goes to the last arm whatever the context.
    bool forced() const;

    // Learn from a round; returns the request if its label is asked for.
    std::optional<LabelRequest> observe(const double* row, const Observation& round);
    void label(const double* row, const Label& label);
    // The same by what was known, which the maps do not refuse.
    void observe(const PartialContext& partial, const Observation& round) { observe(row_of(partial), round); }
    void label(const PartialContext& partial, const Label& label) { this->label(row_of(partial), label); }

    // Compare arms up to ``stop`` again, with exact estimates; false if one does not settle. Looks
    // only: models are solved in copies.
    bool exact_evidence(std::size_t stop, Trace& trace);

    // Rounds and labels learned.
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
    // A standard normal draw for each pair; empty if the rule draws nothing.
    std::vector<double> noise(std::int64_t number) const;
    const double* row_of(const PartialContext& partial);

    FeatureMaps maps_;
    std::shared_ptr<const Config> config_;
    Estimates estimates_;
    DrawnAnswers drawn_answers_;
    Labels labels_;
    Workspace workspace_;
    std::vector<double> row_;  // what `row_of` returns
};

// What came of learning from a round.
struct Learned {
    std::optional<LabelRequest> request;  // for its label
    std::vector<Change> changes;          // that it made noticeable
};

class Learner {
public:
    Learner(Options options, FeatureMaps maps);

    // Decide where a round with this context stops, and fill the trace. Learns nothing. Returns the
    // reason if the context is invalid; then nothing changes.
    std::optional<InvalidCoordinate> decide(const PartialContext& partial, Trace& trace);
    // Where the rule stops, and no more. The maps must not refuse what is known.
    std::size_t rule_stop(const PartialContext& partial);

    // A round that is decided arm by arm: begin it, then ask at each arm whether to stop there.
    void begin(Trace& trace);
    bool should_stop(const PartialContext& partial, std::size_t arm, Trace& trace);

    // Whether the next decision goes to the last arm at random.
    bool explore() { return state_.explores(next_number()); }

    // Learn from a round, of which more may be known than its arms revealed. Returns nothing, and
    // changes nothing, if the context is invalid.
    std::optional<Learned> observe(const PartialContext& partial, const Observation& round);
    // The same for the round just decided: its features are in the trace.
    Learned observe_decided(const PartialContext& partial, const Trace& trace, const Observation& round);
    // Learn from a label. Returns false if the context is invalid.
    bool label(const PartialContext& partial, const Label& label);
    // Watch for changes from now on.
    void watch();

    std::optional<InvalidCoordinate> find_invalid(const PartialContext& partial) const { return maps().find_invalid(partial); }
    bool exact_evidence(std::size_t stop, Trace& trace) { return state_.exact_evidence(stop, trace); }
    // θ̂ of a question; empty if it does not settle. Looks only.
    std::vector<double> theta(std::size_t question);
    Factor gram(std::size_t question);

    const Options& options() const { return options_; }
    const FeatureMaps& maps() const { return state_.maps(); }
    const State& state() const { return state_; }
    std::int64_t rounds() const { return state_.estimates().rounds(); }
    // How often the maps were fitted; restoring counts as one, too.
    std::int64_t fits() const { return fits_; }
    std::size_t nbytes() const;

    std::vector<unsigned char> save();
    // Restore what `save` wrote, into a learner of the same options and maps.
    void restore(const unsigned char* bytes, std::size_t size);

private:
    Learned learn(const double* row, const PartialContext& partial, const Observation& round);
    // The number of the next decision. Counts only where a decision draws anything.
    std::int64_t next_number();
    // Fit the maps to the first rounds, and learn these again.
    void fit();
    void serialize(Archive& archive);

    Options options_;
    State state_;
    std::optional<FirstRounds> first_;  // while the maps are still to be fitted
    std::optional<Drift> drift_;        // if it watches
    std::int64_t decisions_ = 0;        // that drew something
    std::int64_t fits_ = 0;             // of the maps
    std::vector<double> row_;           // of what is known
    Trace trace_;                       // of a decision whose trace is not asked for
};

}  // namespace stopwise
