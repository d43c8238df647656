// The answers of arms that did not run, where stages reveal the context.
//
// Rounds that stop early are not a random sample: what made them stop is known at stop s, and models of
// earlier arms do not see it. So the round counts for them too, with what arm j > s would have said
// drawn by the model of (s, j), which sees everything known at s. Disagreement of s and j is drawn, and
// i < s disagrees with j where exactly one of (i, s) and (s, j) does. Where both do, j may say what i
// said or something else: that is drawn with the share seen so far, and a third answer is taken for
// granted before any was seen (docs/revealed.md).
#pragma once

#include <vector>

#include "context_values.h"
#include "correction.h"

namespace stopwise {

class DrawnAnswers {
public:
    explicit DrawnAnswers(std::shared_ptr<const Config> config);

    // Whether answers to some questions are not those of the arms that ran.
    bool needed() const { return config_->reveals() || config_->rule->compares_with_last(); }

    // Learn how far draws are off, from a round that the rule would have stopped and that went on at
    // random. Models have not learned from it yet.
    void correct(ContextValues& values, const Observation& round);

    // The answers of a round to all questions, after so many other rounds. Valid until the next call.
    const unsigned char* complete(ContextValues& values, const Observation& round, std::int64_t rounds);

    void serialize(Archive& archive);

private:
    // Of rounds in which i and s, and s and j disagreed (i < s < j): in how many i and j did.
    struct Third {
        double seen = 0.0, different = 0.0;
    };
    Third& third(std::size_t i, std::size_t s, std::size_t j) {
        return thirds_[(i * config_->n_arms + s) * config_->n_arms + j];
    }
    void draw_deeper_arms(ContextValues& values, const Observation& round, std::int64_t rounds);
    void count_thirds(const Observation& round);
    bool draw(ContextValues& values, std::size_t question, double u) const;
    static double rounded_logit(ContextValues& values, std::size_t question);

    std::shared_ptr<const Config> config_;
    std::vector<Third> thirds_;            // (n_arms, n_arms, n_arms), or none
    std::vector<Correction> corrections_;  // of each question's draws, or none
    std::vector<unsigned char> answers_;   // what `complete` returns
};

}  // namespace stopwise
