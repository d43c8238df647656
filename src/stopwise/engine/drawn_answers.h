// Imputed answers of arms that did not run, where stages reveal the context.
//
// Rounds that stop early are a biased sample for the models of earlier arms, because the
// information that made them stop at s is not available to these models. So such a round also
// trains them, with the answer of each arm j > s drawn from the model of (s, j), which reads all
// the information at s. The disagreement of s and j is drawn; i < s disagrees with j if exactly one
// of (i, s) and (s, j) disagrees. If both do, j may agree with i or give a third answer: this is
// drawn with the observed share, which starts at 1 for a third answer (docs/revealed-method.md).
#pragma once

#include <vector>

#include "context_values.h"
#include "correction.h"

namespace stopwise {

class DrawnAnswers {
public:
    explicit DrawnAnswers(std::shared_ptr<const Config> config);

    // Whether answers must be completed or rearranged before learning.
    bool needed() const { return config_->reveals() || config_->rule->compares_with_last(); }

    // Update the corrections of draws from a round that exploration continued beyond the stop of
    // the rule. Call it before the models learn from the round.
    void correct(ContextValues& values, const Observation& round);

    // The answers of a round to all questions, after ``rounds`` others. Valid until the next call.
    const unsigned char* complete(ContextValues& values, const Observation& round,
                                  std::int64_t rounds);

    void serialize(Archive& archive);

private:
    // Rounds in which both i and s and s and j disagreed (i < s < j), and how many of them had a
    // third answer (i and j disagreed, too).
    struct Third {
        double count = 0.0, different = 0.0;
    };
    Third& third(std::size_t i, std::size_t s, std::size_t j) {
        return thirds_[(i * config_->n_arms + s) * config_->n_arms + j];
    }
    void draw_deeper_arms(ContextValues& values, const Observation& round, std::int64_t rounds);
    void count_thirds(const Observation& round);
    bool draw(ContextValues& values, std::size_t question, double u) const;
    static double rounded_logit(ContextValues& values, std::size_t question);

    std::shared_ptr<const Config> config_;
    std::vector<Third> thirds_;            // (n_arms, n_arms, n_arms), or empty
    std::vector<Correction> corrections_;  // for each question, or empty
    std::vector<unsigned char> answers_;   // the result of `complete`
};

}  // namespace stopwise
