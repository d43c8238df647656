#include "drawn_answers.h"

#include <algorithm>
#include <cmath>

#include "random.h"

namespace stopwise {

namespace {

// steps of `rounded_logit` per unit: an error of at most 1/512 in p̂
constexpr double kLogitSteps = 64.0;
constexpr double kLogitRange = 32.0;  // limit of its absolute value

}  // namespace

DrawnAnswers::DrawnAnswers(std::shared_ptr<const Config> config) : config_(std::move(config)) {
    if (!config_->reveals()) return;
    thirds_.resize(config_->n_arms * config_->n_arms * config_->n_arms);
    corrections_.resize(config_->questions.size());
}

void DrawnAnswers::correct(ContextValues& values, const Observation& round) {
    if (corrections_.empty()) return;
    if (config_->rate > 0.0) {
        const double share = exp(-config_->rate);
        for (Correction& correction : corrections_) correction.decay(share);
    }
    if (round.rule_stop == 0) return;  // rounds that stop at arm 0 have no draws
    for (std::size_t j = round.rule_stop + 1; j <= round.stop; ++j) {
        // question about j and the last arm
        if (config_->rule->compares_with_last() && j < config_->last()) continue;
        const std::size_t question = config_->pair(round.rule_stop, j);
        corrections_[question].learn(rounded_logit(values, question), round.answers[question] != 0);
    }
}

const unsigned char* DrawnAnswers::complete(ContextValues& values, const Observation& round,
                                            std::int64_t rounds) {
    answers_.assign(round.answers, round.answers + config_->questions.size());
    const std::size_t last = config_->last();
    if (!thirds_.empty()) {
        if (round.stop > 0 && round.stop < last) draw_deeper_arms(values, round, rounds);
        count_thirds(round);
    }
    if (config_->rule->compares_with_last()) {
        for (std::size_t j = 1; j < last; ++j) {  // question (i, j) is about j and the last arm
            for (std::size_t i = 0; i < j; ++i) {
                answers_[config_->pair(i, j)] = answers_[config_->pair(j, last)];
            }
        }
    }
    return answers_.data();
}

void DrawnAnswers::draw_deeper_arms(ContextValues& values, const Observation& round,
                                    std::int64_t rounds) {
    const std::size_t stop = round.stop, last = config_->last();
    for (std::size_t j = config_->rule->compares_with_last() ? last : stop + 1; j <= last; ++j) {
        const std::size_t question = config_->pair(stop, j);
        const bool differs = draw(values, question, draw_of(config_->seed, rounds, j));
        answers_[question] = differs;
        for (std::size_t i = 0; i < stop; ++i) {
            const bool i_differs = round.answers[config_->pair(i, stop)] != 0;
            unsigned char& answer = answers_[config_->pair(i, j)];
            answer = differs != i_differs;
            if (differs && i_differs) {  // j agrees with i or gives a third answer
                const Third& third_answers = third(i, stop, j);
                const double u = draw_of(config_->seed, rounds, 16 + i * 16 + j);
                answer = u * (third_answers.count + 1.0) < third_answers.different + 1.0;
            }
        }
    }
}

void DrawnAnswers::count_thirds(const Observation& round) {
    const auto differ = [&](std::size_t i, std::size_t j) {
        return round.answers[config_->pair(i, j)] != 0;
    };
    for (std::size_t j = 2; j <= round.stop; ++j) {
        for (std::size_t s = 1; s < j; ++s) {
            for (std::size_t i = 0; i < s; ++i) {
                if (!differ(i, s) || !differ(s, j)) continue;
                third(i, s, j).count += 1.0;
                third(i, s, j).different += differ(i, j) ? 1.0 : 0.0;
            }
        }
    }
}

// Whether u < p̂ with the exact estimate, corrected for rounds that stop.
bool DrawnAnswers::draw(ContextValues& values, std::size_t question, double u) const {
    const double threshold = logit(u) - corrections_[question].shift();
    for (int refinements = 0; refinements < kMaxRefinements; ++refinements) {
        const double margin = std::fabs(values.logit(question) - threshold);
        const double error = values.error(question, margin);
        if (error < margin || error <= kExact) break;
        values.refine_question(question, false, refinements >= kCautiousAfter);
    }
    return values.logit(question) > threshold;
}

// The logit of p̂ rounded to a multiple of 1/kLogitSteps, so that it does not depend on how far the
// model has been refined.
double DrawnAnswers::rounded_logit(ContextValues& values, std::size_t question) {
    const auto step = [](double z) {
        const double within = std::clamp(z, -kLogitRange, kLogitRange);
        return static_cast<std::int64_t>((within + kLogitRange) * kLogitSteps + 0.5);
    };
    for (int refinements = 0; refinements < kMaxRefinements; ++refinements) {
        const double z = values.logit(question), error = values.error(question, 0.0);
        if (step(z - error) == step(z + error) || error <= kExact) break;
        values.refine_question(question, false, refinements >= kCautiousAfter);
    }
    return static_cast<double>(step(values.logit(question))) / kLogitSteps - kLogitRange;
}

void DrawnAnswers::serialize(Archive& archive) {
    for (Third& third : thirds_) {
        archive.between(&third.count, 1, 0.0, 1e15, "number of third answers");
        archive.between(&third.different, 1, 0.0, third.count, "number of third answers");
    }
    for (Correction& correction : corrections_) correction.serialize(archive);
}

}  // namespace stopwise
