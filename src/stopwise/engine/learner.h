// The one owner of what a policy has learned: decide, observe, and perhaps label, are one round.
//
// Batches call the same functions for every round, so the same events give the same decisions, bit for
// bit. A learner can be copied. It has no lock: threads that share one must take turns.
#pragma once

#include "drawn_answers.h"
#include "labels.h"
#include "trace.h"

namespace stopwise {

class Learner {
public:
    explicit Learner(Plan plan);

    // Whether the next round goes to the last arm whatever the context.
    bool forced() const;

    // Where a round with these features stops; fills the trace, learns nothing.
    void decide(const double* row, Trace& trace);
    // Where the rule stops, and no more.
    std::size_t rule_stop(const double* row);

    // A round that is decided arm by arm: begin it, then ask at each arm whether to stop there, by a
    // row of features known at least that far.
    void begin(Trace& trace);
    bool should_stop(const double* row, std::size_t arm, Trace& trace);

    // Whether the next decision goes to the last arm at random.
    bool explore();
    double explore_rate() const { return stopwise::explore_rate(*plan_, rounds()); }

    // Compare arms up to ``stop`` again, with exact estimates; false if one does not settle. Looks
    // only: models are solved in copies.
    bool exact_evidence(std::size_t stop, Trace& trace);

    // Learn from a round; returns the request if its label is asked for.
    std::optional<Request> observe(const Observation& round);
    void label(const Label& label);

    // θ̂ of a question; empty if it does not settle. Looks only.
    std::vector<double> theta(std::size_t question);
    Factor gram(std::size_t question);
    double observations(std::size_t question) const { return estimates_.observations(question); }

    const Plan& plan() const { return *plan_; }
    std::int64_t rounds() const { return estimates_.rounds(); }
    double effective_rounds() const { return estimates_.effective_rounds(); }
    std::int64_t labels() const { return labels_.learned(); }
    std::int64_t asked() const { return labels_.asked(); }
    std::int64_t missing() const { return labels_.missing(); }
    const Effort& effort() const { return estimates_.effort(); }
    const History& history() const { return estimates_.history(); }
    std::size_t nbytes() const;

    // Continue the numbers of another learner's decisions.
    void continue_draws(const Learner& other) { draws_ = other.draws_; }

    std::vector<unsigned char> save();
    // Restore what `save` wrote, into a learner of the same plan.
    void restore(const unsigned char* bytes, std::size_t size);

private:
    // The number of the next decision. Counts only where a decision draws anything.
    std::int64_t next_draw();
    // A standard normal draw for each pair; empty if the rule draws nothing.
    std::vector<double> noise(std::int64_t draw) const;
    At at(const double* row, std::vector<double> noise = {});
    std::size_t decide_by_rule(const double* row, std::int64_t draw, Trace& trace);
    void archive(Archive& with);

    std::shared_ptr<const Plan> plan_;
    Estimates estimates_;
    DrawnAnswers drawn_answers_;
    Labels labels_;
    std::int64_t draws_ = 0;  // decisions that drew something
    Workspace workspace_;
    Trace trace_;  // of a decision whose trace is not asked for
};

}  // namespace stopwise
