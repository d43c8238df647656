// Estimates of all questions: the history, a model for each question, and the matrices V.
#pragma once

#include <memory>
#include <vector>

#include "factor.h"
#include "model.h"
#include "config.h"

namespace stopwise {

// The initial V without λ is kGramFloor·I: far below any direction seen and far above rounding. An
// unseen direction has norm 10⁹, huge but finite, so the bonus sends such a context deep.
inline constexpr double kGramFloor = 1e-18;

class Estimates {
public:
    explicit Estimates(std::shared_ptr<const Config> config);

    // Decay all estimates to the current round. With forgetting, the weights of all rounds decay,
    // so a context that always stops early becomes uncertain again.
    void advance();

    // Learn from a round that stopped at ``stop``, with 0 or 1 for each question that it answers.
    void learn(const double* row, std::size_t stop, const unsigned char* answers);

    // The features of a round that ended at ``stop``, with zeros for those that no model reads.
    // These may be revealed by a later stage: a recorded round has them and a live round does not,
    // but both must create the same history. Valid until the next call.
    const std::vector<double>& stored_row(const double* row, std::size_t stop);

    // Count a round, whether it was learned or too short to learn from.
    void count_round();

    // Read the history once for a question.
    void refine(std::size_t question, bool fresh_hessian, bool cautious);

    // Solve the regressions of ``models``; return whether all converged.
    bool solve(std::vector<Model>& models, Effort& effort) const;
    bool solve() { return solve(models_, effort_); }

    // θ̂ of a question; empty if the solver does not converge.
    std::vector<double> theta(std::size_t question) const;
    Factor gram(std::size_t question) const;
    double observations(std::size_t question) const { return gram_of(question).count; }

    // The rule's radius for a question after the current number of rounds.
    double radius(std::size_t question) const;
    // ‖φ‖_{V⁻¹} for the V with index ``gram``, +∞ without observations; overwrites ``work``.
    double gram_norm(std::size_t gram, const double* phi, double* work) const;

    // Whether λ_min(V) has reached the rule's level for every V (forced_rounds="auto").
    bool explored() const { return explored_; }

    std::int64_t rounds() const { return rounds_; }
    double effective_rounds() const;  // sum of weights
    const std::vector<Model>& models() const { return models_; }
    const History& history() const { return history_; }
    const Effort& effort() const { return effort_; }
    void count_settled() { ++effort_.settled; }
    std::size_t nbytes() const;
    void serialize(Archive& archive);

private:
    struct Gram {
        Factor factor;
        double count = 0.0;  // observations
        Numbers sums = {};   // with forgetting: the weighted Σ φφᵀ …
        double now = 0.0;    // … as of this many rounds
    };

    const Gram& gram_of(std::size_t question) const { return grams_[config_->questions[question]]; }
    Source source(std::size_t question, double rounds) const {
        return {history_, question, config_->scope_of(question), rounds};
    }
    void forget(Gram& gram, std::size_t d, const double* phi, double now) const;
    Factor factored(const Numbers& sums, std::size_t d) const;
    void summarise_old_rows();
    void serialize_gram(std::size_t g, Archive& archive);

    std::shared_ptr<const Config> config_;
    std::int64_t rounds_ = 0;
    bool explored_ = false;
    History history_;
    std::vector<Gram> grams_;
    std::vector<Model> models_;
    Effort effort_;
    std::vector<double> row_;  // the result of `stored_row`
    Numbers phi_;              // the features of one V, padded
};

}  // namespace stopwise
