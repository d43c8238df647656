#include "learner.h"

#include <stdexcept>

#include "random.h"

namespace stopwise {

State::State(const Options& options, FeatureMaps maps)
    : maps_(std::move(maps)), plan_(std::make_shared<const Plan>(options, maps_)),
      estimates_(plan_), drawn_answers_(plan_), labels_(plan_), workspace_(*plan_),
      row_(plan_->width) {}

bool State::forced() const {
    if (!plan_->forced_rounds) return !estimates_.explored();
    return estimates_.rounds() < *plan_->forced_rounds;
}

bool State::explores(std::int64_t number) const {
    return stopwise::explores(*plan_, number, estimates_.rounds());
}

std::vector<double> State::noise(std::int64_t number) const {
    if (!plan_->rule->draws()) return {};
    Random random = stream_of(plan_->seed, number, kNoise);
    std::vector<double> normals(plan_->n_pairs());
    for (double& normal : normals) normal = random.normal();
    return normals;
}

At State::at(const double* row, std::vector<double> noise) {
    return {estimates_, estimates_.models(), false, labels_.gains(), *plan_,
            workspace_, row,                 std::move(noise)};
}

const double* State::row_of(const Known& known) {
    maps_.fill(known, row_.data());
    return row_.data();
}

std::size_t State::rule_stop(const double* row, std::int64_t number, Trace& trace) {
    trace.revision = revision();
    trace.comparisons.assign(plan_->n_pairs(), std::nullopt);
    if (forced()) {
        trace.reason = Reason::forced;
        return plan_->last();
    }
    if (const auto fixed = labels_.fixed_depth()) {
        trace.reason = Reason::fixed_by_labels;
        return *fixed;
    }
    trace.reason = Reason::rule;
    estimates_.advance();
    At at = this->at(row, noise(number));
    return StoppingTest(*plan_, at, workspace_, trace.comparisons).stop();
}

bool State::should_stop(const double* row, std::size_t arm, std::int64_t number, Trace& trace) {
    trace.revision = revision();
    if (forced()) return false;
    if (const auto fixed = labels_.fixed_depth()) {
        trace.reason = Reason::fixed_by_labels;
        return arm >= *fixed;
    }
    estimates_.advance();
    At at = this->at(row, noise(number));
    Comparisons comparisons;
    const bool stops = StoppingTest(*plan_, at, workspace_, comparisons).passes(arm);
    for (std::size_t k = 0; k < comparisons.size(); ++k) {
        if (comparisons[k]) trace.comparisons[k] = comparisons[k];
    }
    return stops;
}

bool State::exact_evidence(std::size_t stop, Trace& trace) {
    estimates_.advance();
    std::vector<Model> models = estimates_.models();
    Effort effort;
    if (!estimates_.solve(models, effort)) return false;
    Workspace workspace(*plan_);
    At at(estimates_, models, true, labels_.gains(), *plan_, workspace, trace.row.data(),
          noise(trace.number));
    StoppingTest(*plan_, at, workspace, trace.comparisons).compare_up_to(stop);
    return true;
}

std::optional<LabelRequest> State::observe(const double* row, const Observation& round) {
    estimates_.advance();
    const std::int64_t rounds = estimates_.rounds();
    const unsigned char* answers = round.answers;
    if (drawn_answers_.needed()) {
        At at = this->at(row);
        drawn_answers_.correct(at, round);
        answers = drawn_answers_.complete(at, round, rounds);
    }
    estimates_.learn(row, round.stop, answers);
    const auto request = labels_.ask(round, rounds);
    if (request) labels_.expect(*request, round, estimates_.stored_row(row, round.stop));
    estimates_.count_round();
    return request;
}

void State::label(const double* row, const Label& label) { labels_.learn(row, label); }

std::size_t State::nbytes() const {
    return sizeof(State) + estimates_.nbytes() + labels_.nbytes();
}

void State::archive(Archive& with) {
    workspace_.archive(with);
    estimates_.archive(with);
    drawn_answers_.archive(with);
    labels_.archive(with, estimates_.rounds());
}

Learner::Learner(Options options, FeatureMaps maps)
    : options_(std::move(options)), state_(options_, std::move(maps)) {
    if (this->maps().self_scaling()) {
        first_.emplace(this->maps().context_dim(), options_.n_arms);
    }
}

std::int64_t Learner::next_number() {
    return options_.explore > 0.0 || options_.rule->draws() ? decisions_++ : 0;
}

std::optional<Refusal> Learner::decide(const Known& known, Trace& trace) {
    trace.row.resize(maps().width());
    if (const auto refused = maps().fill(known, trace.row.data())) return refused;
    trace.number = next_number();
    trace.rule_stop = state_.rule_stop(trace.row.data(), trace.number, trace);
    trace.explored = state_.explores(trace.number);
    trace.stop = trace.explored ? options_.last() : trace.rule_stop;
    return std::nullopt;
}

std::size_t Learner::rule_stop(const Known& known) {
    row_.resize(maps().width());
    maps().fill(known, row_.data());
    return state_.rule_stop(row_.data(), options_.rule->draws() ? next_number() : 0, trace_);
}

void Learner::begin(Trace& trace) {
    trace.number = next_number();
    trace.explored = state_.explores(trace.number);
    trace.reason = state_.forced() ? Reason::forced : Reason::rule;
    trace.revision = state_.revision();
    trace.row.assign(maps().width(), 0.0);
    trace.comparisons.assign(options_.n_pairs(), std::nullopt);
}

bool Learner::should_stop(const Known& known, std::size_t arm, Trace& trace) {
    trace.row.resize(maps().width());
    maps().fill(known, trace.row.data());
    return state_.should_stop(trace.row.data(), arm, trace.number, trace);
}

std::optional<Learned> Learner::observe(const Known& known, const Observation& round) {
    row_.resize(maps().width());
    const Known revealed{known.context, round.stop + 1, known.differ};
    if (maps().fill(revealed, row_.data())) return std::nullopt;
    return learn(row_.data(), revealed, round);
}

Learned Learner::observe_decided(const Known& known, const Trace& trace, const Observation& round) {
    if (maps().revealed()) return observe(known, round).value();
    return learn(trace.row.data(), known, round);
}

Learned Learner::learn(const double* row, const Known& known, const Observation& round) {
    Learned learned;
    learned.request = state_.observe(row, round);
    if (first_) {
        first_->add(known, maps().known_after(round.stop + 1), round);
        if (first_->due()) fit();
    } else if (drift_) {
        learned.changes = drift_->add(row, round, state_.estimates());
    }
    return learned;
}

bool Learner::label(const Known& known, const Label& label) {
    row_.resize(maps().width());
    const Known revealed{known.context, label.n, known.differ};
    if (maps().fill(revealed, row_.data())) return false;
    state_.label(row_.data(), label);
    if (first_) first_->add(revealed, maps().known_after(label.n), label);
    return true;
}

void Learner::fit() {
    State fitted(options_, first_->fitted(maps()));
    first_->replay(fitted);
    state_ = std::move(fitted);
    ++fits_;
    if (first_->full()) first_.reset();
    if (drift_) drift_.emplace(state_.plan());  // which begins after the last fit
}

void Learner::watch() {
    if (options_.rule->of_arms()) throw std::invalid_argument("a rule of arms has no pairs to watch");
    if (!drift_) drift_.emplace(state_.plan());
}

std::vector<double> Learner::theta(std::size_t question) {
    state_.estimates().advance();
    return state_.estimates().theta(question);
}

Factor Learner::gram(std::size_t question) {
    state_.estimates().advance();
    return state_.estimates().gram(question);
}

std::size_t Learner::nbytes() const {
    return sizeof(Learner) + state_.nbytes() + (first_ ? first_->nbytes() : 0) +
           (drift_ ? drift_->nbytes() : 0);
}

std::vector<unsigned char> Learner::save() {
    Archive to;
    archive(to);
    return std::move(to.bytes);
}

void Learner::restore(const unsigned char* bytes, std::size_t size) {
    Learner fresh(options_, maps());  // so that nothing changes if the bytes are bad
    Archive from(bytes, size);
    fresh.archive(from);
    from.end();
    fresh.fits_ = fits_ + 1;
    if (drift_) fresh.watch();  // it goes on watching
    *this = std::move(fresh);
}

void Learner::archive(Archive& with) {
    with.count(decisions_, kMostCounted, "its number of decisions");
    FeatureMaps fitted = maps();
    fitted.archive(with);
    if (with.reading()) state_ = State(options_, std::move(fitted));
    state_.archive(with);
    if (maps().self_scaling()) {
        bool first = first_.has_value();
        with.count(first, 1, "whether its features are fitted");
        const auto last_fit = static_cast<std::int64_t>(FirstRounds::kLastFit);
        with.check(first == (rounds() < last_fit), "its number of first rounds");
        if (!first) first_.reset();
        if (first_) first_->archive(with, rounds());
    }
    bool watching = drift_.has_value();
    with.count(watching, options_.rule->of_arms() ? 0 : 1, "whether it watches");
    if (with.reading() && watching) watch();
    if (drift_) drift_->archive(with, rounds());
}

}  // namespace stopwise
