#include "learner.h"

#include "random.h"

namespace stopwise {

namespace {

std::shared_ptr<const Plan> shared_plan(Plan plan) {
    plan.thresholds.clear();
    for (std::size_t i = 0; i < plan.n_arms; ++i) {
        for (std::size_t j = i + 1; j < plan.n_arms; ++j) {
            plan.thresholds.push_back(plan.rule->threshold(plan.gap(i, j)));
        }
    }
    return std::make_shared<const Plan>(std::move(plan));
}

}  // namespace

Learner::Learner(Plan plan)
    : plan_(shared_plan(std::move(plan))), estimates_(plan_), drawn_answers_(plan_),
      labels_(plan_), workspace_(*plan_) {}

bool Learner::forced() const {
    if (plan_->forced_rounds == kUntilExplored) return !estimates_.explored();
    return rounds() < plan_->forced_rounds;
}

std::int64_t Learner::next_draw() {
    return plan_->explore > 0.0 || plan_->rule->draws() ? draws_++ : 0;
}

std::vector<double> Learner::noise(std::int64_t draw) const {
    if (!plan_->rule->draws()) return {};
    Random random = stream_of(plan_->seed, draw, kNoise);
    std::vector<double> normals(plan_->n_pairs());
    for (double& normal : normals) normal = random.normal();
    return normals;
}

At Learner::at(const double* row, std::vector<double> noise) {
    return {estimates_, estimates_.models(), false, labels_.gains(), *plan_,
            workspace_, row,                 std::move(noise)};
}

void Learner::decide(const double* row, Trace& trace) {
    trace.draw = next_draw();
    trace.rule_stop = decide_by_rule(row, trace.draw, trace);
    trace.explored = explores(*plan_, trace.draw, rounds());
    trace.stop = trace.explored ? plan_->last() : trace.rule_stop;
    trace.revision = rounds() + labels();
}

std::size_t Learner::rule_stop(const double* row) {
    return decide_by_rule(row, plan_->rule->draws() ? next_draw() : 0, trace_);
}

std::size_t Learner::decide_by_rule(const double* row, std::int64_t draw, Trace& trace) {
    const auto fixed = labels_.fixed_depth();
    trace.reason = forced() ? Reason::forced : fixed ? Reason::fixed_by_labels : Reason::rule;
    if (trace.reason == Reason::rule) {
        estimates_.advance();
        At at = this->at(row, noise(draw));
        return StoppingTest(*plan_, at, workspace_, trace.comparisons).stop();
    }
    trace.comparisons.assign(plan_->n_pairs(), std::nullopt);
    return trace.reason == Reason::forced ? plan_->last() : *fixed;
}

void Learner::begin(Trace& trace) {
    trace.draw = next_draw();
    trace.explored = explores(*plan_, trace.draw, rounds());
    trace.reason = forced() ? Reason::forced : Reason::rule;
    trace.revision = rounds() + labels();
    trace.comparisons.assign(plan_->n_pairs(), std::nullopt);
}

bool Learner::should_stop(const double* row, std::size_t arm, Trace& trace) {
    trace.row.assign(row, row + plan_->width);
    trace.revision = rounds() + labels();
    if (forced()) return false;
    if (const auto fixed = labels_.fixed_depth()) {
        trace.reason = Reason::fixed_by_labels;
        return arm >= *fixed;
    }
    estimates_.advance();
    At at = this->at(row, noise(trace.draw));
    Comparisons comparisons;
    const bool stops = StoppingTest(*plan_, at, workspace_, comparisons).passes(arm);
    for (std::size_t k = 0; k < comparisons.size(); ++k) {
        if (comparisons[k]) trace.comparisons[k] = comparisons[k];
    }
    return stops;
}

bool Learner::explore() { return explores(*plan_, next_draw(), rounds()); }

bool Learner::exact_evidence(std::size_t stop, Trace& trace) {
    estimates_.advance();
    std::vector<Model> models = estimates_.models();
    Effort effort;
    if (!estimates_.solve(models, effort)) return false;
    Workspace workspace(*plan_);
    At at(estimates_, models, true, labels_.gains(), *plan_, workspace, trace.row.data(),
          noise(trace.draw));
    StoppingTest(*plan_, at, workspace, trace.comparisons).compare_up_to(stop);
    return true;
}

std::optional<Request> Learner::observe(const Observation& round) {
    estimates_.advance();
    const unsigned char* answers = round.answers;
    if (drawn_answers_.needed()) {
        At at = this->at(round.row);
        drawn_answers_.correct(at, round);
        answers = drawn_answers_.complete(at, round, rounds());
    }
    estimates_.learn(round.row, round.stop, answers);
    const auto request = labels_.ask(round, rounds());
    if (request) labels_.expect(*request, round, estimates_.stored_row(round.row, round.stop));
    estimates_.count_round();
    return request;
}

void Learner::label(const Label& label) { labels_.learn(label); }

std::vector<double> Learner::theta(std::size_t question) {
    estimates_.advance();
    return estimates_.theta(question);
}

Factor Learner::gram(std::size_t question) {
    estimates_.advance();
    return estimates_.gram(question);
}

std::size_t Learner::nbytes() const {
    return sizeof(Learner) + estimates_.nbytes() + labels_.nbytes();
}

std::vector<unsigned char> Learner::save() {
    Archive to;
    archive(to);
    return std::move(to.bytes);
}

void Learner::restore(const unsigned char* bytes, std::size_t size) {
    Learner fresh(*plan_);  // so that nothing changes if the bytes are bad
    Archive from(bytes, size);
    fresh.archive(from);
    from.end();
    *this = std::move(fresh);
}

void Learner::archive(Archive& with) {
    with.count(draws_, kMostCounted, "its number of draws");
    workspace_.archive(with);
    estimates_.archive(with);
    drawn_answers_.archive(with);
    labels_.archive(with, rounds());
}

}  // namespace stopwise
