#include "learner.h"

#include <stdexcept>

#include "random.h"

namespace stopwise {

State::State(const Options& options, FeatureMaps maps)
    : maps_(std::move(maps)), config_(std::make_shared<const Config>(options, maps_)),
      estimates_(config_), drawn_answers_(config_), labels_(config_), workspace_(*config_),
      row_(config_->width) {}

bool State::forced() const {
    if (!config_->forced_rounds) return !estimates_.explored();
    return estimates_.rounds() < *config_->forced_rounds;
}

bool State::explores(std::int64_t number) const {
    return stopwise::explores(*config_, number, estimates_.rounds());
}

std::vector<double> State::noise(std::int64_t number) const {
    if (!config_->rule->uses_noise()) return {};
    Random random = stream_of(config_->seed, number, kNoise);
    std::vector<double> normals(config_->n_pairs());
    for (double& normal : normals) normal = random.normal();
    return normals;
}

ContextValues State::values_of(const double* row, std::vector<double> noise) {
    return {estimates_, estimates_.models(), false, labels_.gains(), *config_,
            workspace_, row,                 std::move(noise)};
}

const double* State::row_of(const PartialContext& partial) {
    maps_.fill(partial, row_.data());
    return row_.data();
}

std::size_t State::rule_stop(const double* row, std::int64_t number, Trace& trace) {
    trace.revision = revision();
    trace.comparisons.assign(config_->n_pairs(), std::nullopt);
    if (forced()) {
        trace.reason = Reason::forced;
        return config_->last();
    }
    if (const auto fixed = labels_.fixed_depth()) {
        trace.reason = Reason::fixed_by_labels;
        return *fixed;
    }
    trace.reason = Reason::rule;
    estimates_.advance();
    ContextValues values = values_of(row, noise(number));
    return StoppingTest(*config_, values, workspace_, trace.comparisons).stop();
}

bool State::should_stop(const double* row, std::size_t arm, std::int64_t number, Trace& trace) {
    trace.revision = revision();
    if (forced()) return false;
    if (const auto fixed = labels_.fixed_depth()) {
        trace.reason = Reason::fixed_by_labels;
        return arm >= *fixed;
    }
    estimates_.advance();
    ContextValues values = values_of(row, noise(number));
    Comparisons comparisons;
    const bool stops = StoppingTest(*config_, values, workspace_, comparisons).passes(arm);
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
    Workspace workspace(*config_);
    ContextValues values(estimates_, models, true, labels_.gains(), *config_, workspace,
                         trace.row.data(), noise(trace.number));
    StoppingTest(*config_, values, workspace, trace.comparisons).compare_up_to(stop);
    return true;
}

std::optional<LabelRequest> State::observe(const double* row, const Observation& round) {
    estimates_.advance();
    const std::int64_t rounds = estimates_.rounds();
    const unsigned char* answers = round.answers;
    if (drawn_answers_.needed()) {
        ContextValues values = values_of(row);
        drawn_answers_.correct(values, round);
        answers = drawn_answers_.complete(values, round, rounds);
    }
    estimates_.learn(row, round.stop, answers);
    const auto request = labels_.request(round, rounds);
    if (request) labels_.expect(*request, round, estimates_.stored_row(row, round.stop));
    estimates_.count_round();
    return request;
}

void State::label(const double* row, const Label& label) { labels_.learn(row, label); }

std::size_t State::nbytes() const {
    return sizeof(State) + estimates_.nbytes() + labels_.nbytes();
}

void State::serialize(Archive& archive) {
    workspace_.serialize(archive);
    estimates_.serialize(archive);
    drawn_answers_.serialize(archive);
    labels_.serialize(archive, estimates_.rounds());
}

Learner::Learner(Options options, FeatureMaps maps)
    : options_(std::move(options)), state_(options_, std::move(maps)) {
    if (this->maps().self_scaling()) {
        first_rounds_.emplace(this->maps().context_dim(), options_.n_arms);
    }
}

std::int64_t Learner::next_number() {
    return options_.explore > 0.0 || options_.rule->uses_noise() ? decisions_++ : 0;
}

std::optional<InvalidCoordinate> Learner::decide(const PartialContext& partial, Trace& trace) {
    trace.row.resize(maps().width());
    if (const auto invalid = maps().fill(partial, trace.row.data())) return invalid;
    trace.number = next_number();
    trace.rule_stop = state_.rule_stop(trace.row.data(), trace.number, trace);
    trace.explored = state_.explores(trace.number);
    trace.stop = trace.explored ? options_.last() : trace.rule_stop;
    return std::nullopt;
}

std::size_t Learner::rule_stop(const PartialContext& partial) {
    row_.resize(maps().width());
    maps().fill(partial, row_.data());
    return state_.rule_stop(row_.data(), options_.rule->uses_noise() ? next_number() : 0, trace_);
}

void Learner::begin(Trace& trace) {
    trace.number = next_number();
    trace.explored = state_.explores(trace.number);
    trace.reason = state_.forced() ? Reason::forced : Reason::rule;
    trace.revision = state_.revision();
    trace.row.assign(maps().width(), 0.0);
    trace.comparisons.assign(options_.n_pairs(), std::nullopt);
}

bool Learner::should_stop(const PartialContext& partial, std::size_t arm, Trace& trace) {
    trace.row.resize(maps().width());
    maps().fill(partial, trace.row.data());
    return state_.should_stop(trace.row.data(), arm, trace.number, trace);
}

std::optional<Learned> Learner::observe(const PartialContext& partial, const Observation& round) {
    row_.resize(maps().width());
    const PartialContext revealed{partial.context, round.stop + 1, partial.differ};
    if (maps().fill(revealed, row_.data())) return std::nullopt;
    return learn(row_.data(), revealed, round);
}

Learned Learner::observe_decided(const PartialContext& partial, const Trace& trace,
                                 const Observation& round) {
    if (maps().revealed()) return observe(partial, round).value();
    return learn(trace.row.data(), partial, round);
}

Learned Learner::learn(const double* row, const PartialContext& partial, const Observation& round) {
    Learned learned;
    learned.request = state_.observe(row, round);
    if (first_rounds_) {
        first_rounds_->add(partial, maps().dim_after(round.stop + 1), round);
        if (first_rounds_->due()) fit();
    } else if (drift_) {
        learned.changes = drift_->add(row, round, state_.estimates());
    }
    return learned;
}

bool Learner::label(const PartialContext& partial, const Label& label) {
    row_.resize(maps().width());
    const PartialContext revealed{partial.context, label.n, partial.differ};
    if (maps().fill(revealed, row_.data())) return false;
    state_.label(row_.data(), label);
    if (first_rounds_) first_rounds_->add(revealed, maps().dim_after(label.n), label);
    return true;
}

void Learner::fit() {
    State fitted(options_, first_rounds_->fitted(maps()));
    first_rounds_->replay(fitted);
    state_ = std::move(fitted);
    ++fits_;
    if (first_rounds_->full()) first_rounds_.reset();
    if (drift_) drift_.emplace(state_.config());  // it starts after the last fit
}

void Learner::watch() {
    if (options_.rule->per_arm()) {
        throw std::invalid_argument("drift detection requires a rule that models pairs of arms");
    }
    if (!drift_) drift_.emplace(state_.config());
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
    return sizeof(Learner) + state_.nbytes() + (first_rounds_ ? first_rounds_->nbytes() : 0) +
           (drift_ ? drift_->nbytes() : 0);
}

std::vector<unsigned char> Learner::save() {
    Archive to;
    serialize(to);
    return std::move(to.bytes);
}

void Learner::restore(const unsigned char* bytes, std::size_t size) {
    Learner fresh(options_, maps());  // so that invalid bytes change nothing
    Archive from(bytes, size);
    fresh.serialize(from);
    from.end();
    fresh.fits_ = fits_ + 1;
    if (drift_) fresh.watch();  // restoring keeps it enabled
    *this = std::move(fresh);
}

void Learner::serialize(Archive& archive) {
    archive.count(decisions_, kMaxCount, "number of decisions");
    FeatureMaps fitted = maps();
    fitted.serialize(archive);
    if (archive.reading()) state_ = State(options_, std::move(fitted));
    state_.serialize(archive);
    if (maps().self_scaling()) {
        bool in_first_rounds = first_rounds_.has_value();
        archive.count(in_first_rounds, 1, "fitted features flag");
        const auto last_fit = static_cast<std::int64_t>(FirstRounds::kLastFit);
        archive.check(in_first_rounds == (rounds() < last_fit), "number of first rounds");
        if (!in_first_rounds) first_rounds_.reset();
        if (first_rounds_) first_rounds_->serialize(archive, rounds());
    }
    bool watching = drift_.has_value();
    archive.count(watching, options_.rule->per_arm() ? 0 : 1, "drift flag");
    if (archive.reading() && watching) watch();
    if (drift_) drift_->serialize(archive, rounds());
}

}  // namespace stopwise
