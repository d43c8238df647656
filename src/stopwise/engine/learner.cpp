#include "learner.h"

#include <algorithm>
#include <cmath>

namespace stopwise {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
// What V starts from without λ: far below any direction seen, far above rounding. An unseen
// direction then has the norm 10⁹, huge but finite: optimism sends such a context deep.
constexpr double kFloor = 1e-18;
// Exploration falls like 1/t from round kExploreFor on, to a share kExploreFloor of where it began.
// Heuristics, by simulation: flat optima.
constexpr double kExploreFor = 200.0, kExploreFloor = 1.0 / 30.0;
constexpr double kRevealedFloor = 1.0 / 10.0;  // … where answers that are drawn rest on it
constexpr double kLogitSteps = 64.0;  // of `rounded_logit` in a logit: p̂ is off by 1/512 at most
constexpr double kLogitRange = 32.0;  // … which it does not exceed
constexpr double kEarly = 1.0 / 3.0;     // heuristic: of the labels in all, those asked at once
constexpr double kEarlyOfRate = 30.0;    // … and their number where a rate is given
constexpr double kConfident = 3.0;       // standard deviations from which a fixed depth is trusted
constexpr std::int64_t kTrial = 64;      // rounds from which the rule is on trial
// Indices of the streams of a decision; those of a round are at most 222 (`complete`).
constexpr std::size_t kNoise = 254, kExploring = 255;

// Passes over history for one comparison; a damped Newton run needs tens.
constexpr int kMaxPairPasses = 40;

constexpr double kLongest = 1.01;  // ‖φ‖² ≤ 1, with room for rounding
constexpr double kLargest = 1.001;  // |φ_c| ≤ 1, likewise

}  // namespace

// The context at hand, seen with some set of models: the learner's own, or refined copies.
class Learner::At final : public View {
public:
    At(const Learner& learner, const std::vector<Model>& models, Scratch& scratch,
       std::vector<double> noise = {})
        : learner_(learner), models_(models), scratch_(scratch), noise_(std::move(noise)) {}

    std::size_t pair(std::size_t i, std::size_t j) const override { return learner_.pair(i, j); }

    double logit(std::size_t k) override { return models_[k].logit(phi(k)); }

    double error(std::size_t k, double enough) override {
        const Model& model = models_[k];
        double error = model.prior_bound() + std::fabs(logit(k));
        const double b = model.slack();
        if (error < enough || b == kInfinity) return error;
        error = std::min(error, b * cheap_norm(k));
        if (error < enough) return error;
        return std::min(error, b * hessian_norm(k));
    }

    double bonus(std::size_t k) override {
        const std::size_t g = learner_.plan_.questions[k];
        double& bonus = scratch_.bonuses[g];
        if (bonus < 0.0) {
            const Gram& gram = learner_.grams_[g];
            double& norm = scratch_.norms[g];
            norm = kInfinity;
            if (gram.count > 0.0 || learner_.rule_->lam() > 0.0) {
                norm = std::sqrt(gram.factor.square_norm(phi(k), scratch_.work.data()));
            }
            bonus = norm == kInfinity ? kInfinity : learner_.radius_of(gram) * norm;
        }
        return bonus;
    }

    double hessian_norm(std::size_t k) override {
        Normed& normed = scratch_.normed[k];
        if (normed.sweep != scratch_.sweep) {
            normed = {models_[k].hessian_norm(phi(k), scratch_.work.data()), scratch_.sweep};
        }
        return normed.norm;
    }
    double hessian_turn(std::size_t k) override {
        return models_[k].anchored() ? models_[k].hessian_turn() : kInfinity;
    }
    double radius(std::size_t k) const override {
        return learner_.radius_of(learner_.grams_[learner_.plan_.questions[k]]);
    }
    double noise(std::size_t k) const override { return noise_.empty() ? 1.0 : noise_[k]; }
    std::size_t last_arm() const override { return learner_.plan_.n_arms - 1; }

    const double* phi(std::size_t k) const {
        return scratch_.phi[learner_.plan_.questions[k]].data();
    }
    // The most that going on gains where the pair disagrees; 1 without labels.
    Gain::Upper gain(std::size_t k) {
        if (learner_.gains_.empty()) return {1.0, 1.0};
        Gain::Upper& gain = scratch_.gains[k];
        if (std::isnan(gain.gain)) gain = learner_.gains_[k].upper(phi(k));
        return gain;
    }
    Scratch& scratch() { return scratch_; }

private:
    // ‖φ‖_{H⁻¹} from above, by the ‖φ‖_{V⁻¹} that the bonus needed anyway:
    // H = Σ μ'φφᵀ + ridge·I ≽ min(lightest μ', ridge/base)·(V + base·I).
    double cheap_norm(std::size_t k) {
        const double norm = scratch_.norms[learner_.plan_.questions[k]];
        if (norm < 0.0) return kInfinity;  // the rule did not ask for it
        double base = std::max(learner_.rule_->lam(), kFloor);
        if (learner_.plan_.rate > 0.0) {  // V has rows that the history dropped, and H may not
            base += kForgotten * (1.0 + 1.0 / learner_.plan_.rate);
        }
        const double share = std::min(models_[k].lightest(), models_[k].ridge() / base);
        return norm / std::sqrt(share);
    }

    const Learner& learner_;
    const std::vector<Model>& models_;
    Scratch& scratch_;
    std::vector<double> noise_;
};

Learner::Learner(Plan plan, std::shared_ptr<const Rule> rule)
    : plan_(std::move(plan)), rule_(std::move(rule)), pairs_(plan_.n_arms * plan_.n_arms, 0),
      history_(plan_.n_arms, plan_.width, plan_.answered_from(), plan_.rate),
      fixed_(plan_.n_arms), depths_(plan_.n_arms) {
    std::size_t k = 0;
    for (std::size_t i = 0; i < plan_.n_arms; ++i) {
        beaten_by_.push_back(i + 1);
        for (std::size_t j = i + 1; j < plan_.n_arms; ++j) pairs_[i * plan_.n_arms + j] = k++;
    }
    for (const double gap : plan_.gaps) thresholds_.push_back(rule_->threshold(gap));
    const Scope& whole = scope_of(pair(0, plan_.n_arms - 1));
    if (whole.from < whole.arm) {
        thirds_.resize(plan_.n_arms * plan_.n_arms * plan_.n_arms);
        corrections_.resize(plan_.questions.size());
    }
    for (const Scope& gram : plan_.grams) {
        grams_.push_back({Factor(gram.dim, std::max(rule_->lam(), kFloor))});
        if (plan_.rate > 0.0) grams_.back().sums.assign(gram.dim * padded(gram.dim), 0.0);
    }
    for (const std::size_t g : plan_.questions) {
        models_.emplace_back(plan_.grams[g].dim, plan_.ridge, plan_.rate);
    }
    scratch_ = scratch();
}

Learner::Scratch Learner::scratch() const {
    Scratch created;
    std::size_t widest = 0;
    for (const Scope& gram : plan_.grams) {
        created.phi.emplace_back(padded(gram.dim), 0.0);
        widest = std::max(widest, padded(gram.dim));
    }
    created.work.assign(widest, 0.0);
    return created;
}

void Learner::load(const double* row, Scratch& scratch) const {
    for (std::size_t g = 0; g < grams_.size(); ++g) {
        std::copy_n(row + plan_.grams[g].offset, plan_.grams[g].dim, scratch.phi[g].begin());
    }
    scratch.norms.assign(grams_.size(), -1.0);
    scratch.bonuses.assign(grams_.size(), -1.0);
    scratch.gains.assign(n_pairs(), {kNaN, kNaN});
    scratch.pairs.assign(n_pairs(), PairState{});
    scratch.solved = scratch.settled = false;
    scratch.normed.assign(models_.size(), Normed{});
    scratch.sweep = 1;
}

// Rounds as they count: all, or Σ_k e^{−rate·k}.
double Learner::effective_rounds() const {
    const auto n = static_cast<double>(rounds_);
    const auto lost = [](double x) {  // 1 − e⁻ˣ, also for small x
        return x < 1e-5 ? x * (1.0 - x / 2.0 + x * x / 6.0) : 1.0 - exp(-x);
    };
    return plan_.rate > 0.0 ? lost(plan_.rate * n) / lost(plan_.rate) : n;
}

double Learner::radius_of(const Gram& gram) const {
    return rule_->radius(gram.count, effective_rounds());
}

// With forgetting, rounds lose weight whatever they observed: a context that always stops early
// becomes uncertain again, and is looked at again.
void Learner::advance() {
    if (plan_.rate == 0.0) return;
    const auto now = static_cast<double>(rounds_);
    for (std::size_t g = 0; g < grams_.size(); ++g) {
        advance(grams_[g], plan_.grams[g].dim, nullptr, now);
    }
    for (Model& model : models_) model.advance(now);
}

// Let V lose what it loses until ``now``, add a row if one is given, and factor it if anything reads
// it. Its base is not forgotten.
void Learner::advance(Gram& gram, std::size_t d, const double* phi, double now) const {
    if (gram.now == now && phi == nullptr) return;
    const double share = exp(-plan_.rate * (now - gram.now));
    const std::size_t stride = padded(d);
    gram.now = now;
    gram.count = share * gram.count + (phi != nullptr ? 1.0 : 0.0);
    for (std::size_t c = 0; c < d; ++c) {
        for (std::size_t r = c; r < d; ++r) {
            double& sum = gram.sums[c * stride + r];
            sum = share * sum + (phi != nullptr ? phi[c] * phi[r] : 0.0);
        }
    }
    if (rule_->reads_gram() || (plan_.forced_rounds == kUntilExplored && !explored_)) {
        gram.factor = factored(gram.sums, d);
    }
}

Factor Learner::factored(const Numbers& sums, std::size_t d) const {
    const double base = std::max(rule_->lam(), kFloor);
    Factor factor(d, base);
    Numbers whole = sums;
    for (std::size_t c = 0; c < d; ++c) whole[c * padded(d) + c] += base;
    factor.take(whole, base);
    return factor;
}

Factor Learner::gram(std::size_t question) {
    advance();
    const Gram& gram = gram_of(question);
    return plan_.rate > 0.0 ? factored(gram.sums, scope_of(question).dim) : gram.factor;
}

bool Learner::forced() const {
    if (plan_.forced_rounds == kUntilExplored) return !explored_;
    return rounds_ < plan_.forced_rounds;
}

std::int64_t Learner::next_draw() {
    return plan_.explore > 0.0 || rule_->draws() ? draws_++ : 0;
}

bool Learner::explores(std::int64_t draw) const {
    return plan_.explore > 0.0 && draw_of(plan_.seed, draw, kExploring) < explore_rate();
}

std::vector<double> Learner::noise(std::int64_t draw) const {
    if (!rule_->draws()) return {};
    Random random = stream_of(plan_.seed, draw, kNoise);
    std::vector<double> normals(n_pairs());
    for (double& normal : normals) normal = random.normal();
    return normals;
}

std::size_t Learner::decide(const double* row, std::int64_t draw, Noted* noted) {
    std::fill_n(noted, n_pairs(), kNotCompared);
    const std::size_t last = plan_.n_arms - 1;
    if (forced()) return last;
    advance();
    if (fixed_ <= last) {
        noted[0].through = kFixedByLabels;
        return fixed_;
    }
    load(row, scratch_);
    At at(*this, models_, scratch_, noise(draw));
    for (std::size_t i = 0; i < last; ++i) {
        if (stops_at(at, i, noted)) return i;
    }
    return last;
}

bool Learner::should_stop(const double* row, std::int64_t draw, Noted* noted, std::size_t i) {
    if (forced()) return false;
    advance();
    if (fixed_ < plan_.n_arms) {
        noted[0].through = kFixedByLabels;
        return i >= fixed_;
    }
    load(row, scratch_);
    At at(*this, models_, scratch_, noise(draw));
    return stops_at(at, i, noted);
}

// Whether to stop at i. One proved loss decides that, so all pairs are compared before any history
// is read. The loop ends: `refine` reads history at most kMaxPairPasses times for a pair, then solves
// all regressions once, then settles, and no verdict is unsure after that.
bool Learner::stops_at(At& at, std::size_t i, Noted* noted) {
    for (;;) {
        ++at.scratch().sweep;
        const PairState state = against_all(at, i, noted);
        if (state.verdict == Verdict::wins) return true;
        if (state.verdict == Verdict::loses) return false;
        refine(at, *state.doubt);
    }
}

// The verdict of i against all deeper arms: it must win against each.
Learner::PairState Learner::against_all(At& at, std::size_t i, Noted* noted) {
    const std::size_t deeper = plan_.n_arms - 1 - i;
    PairState all;
    all.verdict = Verdict::wins;
    for (std::size_t step = 0; step < deeper; ++step) {
        std::size_t j = beaten_by_[i] + step;  // the arm that won last time is likely to win again
        if (j >= plan_.n_arms) j -= deeper;
        const PairState& one = against(at, i, j, noted);
        if (one.verdict == Verdict::loses) {
            beaten_by_[i] = j;
            return one;
        }
        all.verdict = std::min(all.verdict, one.verdict);
        all.doubt = likelier_loss(all.doubt, one.doubt);
    }
    return all;
}

// The verdict of i against j: it wins if C_j − C_i > p̃_ij or, if ``transitive``, if it wins against
// some arm k between them, which wins against j: C_k − C_i > γ_i − γ_k and C_j − C_k > γ_k − γ_j add
// up (docs/theory.md). It loses if all of these ways lose.
const Learner::PairState& Learner::against(At& at, std::size_t i, std::size_t j,
                                           Noted* noted) const {
    PairState& state = at.scratch().pairs[pair(i, j)];
    if (state.verdict != Verdict::unsure || state.sweep == at.scratch().sweep) return state;
    const Comparison direct = compare(at, i, j);
    Noted& note = noted[pair(i, j)];
    note = direct.noted;
    Verdict verdict = direct.verdict;
    std::optional<Doubt> doubt;
    if (verdict == Verdict::unsure) doubt = {i, j, direct.margin};
    for (std::size_t k = i + 1; plan_.transitive && verdict != Verdict::wins && k < j; ++k) {
        const PairState& first = against(at, i, k, noted);
        if (first.verdict == Verdict::loses) continue;
        const PairState& second = against(at, k, j, noted);
        if (second.verdict == Verdict::loses) continue;
        verdict = std::min(first.verdict, second.verdict);  // the chain wins, or may win yet
        if (verdict == Verdict::wins) note.through = static_cast<double>(k);
        // Of several ways, refine the likeliest to win; of its steps, the likeliest to lose.
        doubt = likelier_win(doubt, likelier_loss(first.doubt, second.doubt));
    }
    if (verdict != Verdict::unsure) doubt.reset();  // one way has won, whatever the others do
    // not a comparison that the decision rests on, yet
    if (direct.verdict == Verdict::unsure || verdict == Verdict::unsure) note.estimate = kNaN;
    state.verdict = verdict;
    state.doubt = doubt;
    state.sweep = at.scratch().sweep;
    return state;
}

std::optional<Learner::Doubt> Learner::likelier_loss(const std::optional<Doubt>& one,
                                                     const std::optional<Doubt>& other) {
    if (!one) return other;
    if (!other) return one;
    return other->margin < one->margin ? other : one;
}

std::optional<Learner::Doubt> Learner::likelier_win(const std::optional<Doubt>& one,
                                                    const std::optional<Doubt>& other) {
    if (!one) return other;
    if (!other) return one;
    return other->margin > one->margin ? other : one;
}

// Bring a comparison closer to its verdict: read the history once more for it. Where that has not
// helped for long (separable pairs with a tiny ridge), solve every regression to the end. If
// rounding leaves even that without a certificate, compare the estimates as they are.
void Learner::refine(At& at, const Doubt& doubt) {
    Scratch& scratch = at.scratch();
    PairState& state = scratch.pairs[pair(doubt.i, doubt.j)];
    if (state.refinements < kMaxPairPasses) {
        const std::size_t question = rule_->unsettled(at, doubt.i, doubt.j);
        const bool cautious = state.refinements >= kPatience;
        models_[question].refine(source(question), rule_->reads_hessian(), cautious, effort_);
        ++state.refinements;
    } else if (!scratch.solved) {
        solve(models_, effort_);
        scratch.solved = true;
    } else {
        scratch.settled = true;
        ++effort_.settled;
    }
}

// Solve every regression; return whether all converged.
bool Learner::solve(std::vector<Model>& models, Effort& effort) const {
    bool converged = true;
    for (std::size_t k = 0; k < models.size(); ++k) {
        converged = models[k].solve(source(k), rule_->reads_hessian(), effort) && converged;
    }
    return converged;
}

// Compare the gap of (i, j) with its upper value. Where labels show that going on gains g < 1 on
// disagreement, it corrects at most p̃·g, and gap > p̃·g is the test gap/g > p̃.
Learner::Comparison Learner::compare(At& at, std::size_t i, std::size_t j) const {
    const bool settle = at.scratch().settled;  // by the estimate, whatever its certificate
    const std::size_t ij = i * plan_.n_arms + j;
    const auto [gain, response] = at.gain(pair(i, j));
    double gap = plan_.gaps[ij], threshold = thresholds_[ij];
    if (gain < 1.0) {
        const bool loss = gap > 0.0 || (gap == 0.0 && gain < 0.0);  // of going on, if gain ≤ 0
        gap = gain > 0.0 ? gap / gain : loss ? kInfinity : 0.0;
        threshold = rule_->threshold(gap);
    }
    // A gap above one exceeds every probability.
    const bool always = gap > 1.0 && threshold == kInfinity;
    if (!settle && (always || threshold == -kInfinity)) {
        // no upper value is needed to know this; where labels show it, they are the evidence
        const Noted noted = always && gain < 1.0
                                ? Noted{at.logit(pair(i, j)), kInfinity, gain, -1.0, response}
                                : kNotCompared;
        return {always ? Verdict::wins : Verdict::loses, 0.0, noted};
    }
    const Upper upper = rule_->upper(at, i, j, threshold);
    const bool exact = settle || upper.high - upper.low <= 2.0 * kExact;
    const Verdict verdict = always ? Verdict::wins : certified(threshold, upper, exact);
    return {verdict, threshold - upper.value, {upper.estimate, upper.value, gain, -1.0, response}};
}

bool Learner::evidence(const double* row, std::int64_t draw, std::size_t stop, Noted* noted) {
    advance();
    Scratch scratch = this->scratch();
    load(row, scratch);
    std::vector<Model> models = models_;
    Effort effort;
    const bool converged = solve(models, effort);
    scratch.settled = true;
    At at(*this, models, scratch, noise(draw));
    std::fill_n(noted, n_pairs(), kNotCompared);
    ++at.scratch().sweep;
    for (std::size_t i = 0; i <= stop; ++i) {
        for (std::size_t j = i + 1; j < plan_.n_arms; ++j) against(at, i, j, noted);
    }
    return converged;
}

std::vector<Evidence> Learner::explain(const Noted* noted, std::size_t stop) const {
    std::vector<Evidence> all;
    for (std::size_t i = 0; i + 1 < plan_.n_arms && i <= stop; ++i) {
        for (std::size_t j = i + 1; j < plan_.n_arms; ++j) {
            const Noted& note = noted[pair(i, j)];
            if (std::isnan(note.estimate)) continue;
            const std::size_t ij = i * plan_.n_arms + j;
            const double gap = plan_.gaps[ij], upper = rule_->shown(note.upper);
            const bool always = gap > 1.0 && thresholds_[ij] == kInfinity;
            const bool won = note.through >= 0.0 || always ||
                             (note.gain < 1.0 ? gap > upper * note.gain
                                              : thresholds_[ij] > note.upper);
            all.emplace_back(i, j, gap, rule_->shown(note.estimate), upper, won, note.gain,
                             static_cast<std::ptrdiff_t>(note.through), note.response);
        }
    }
    return all;
}

Request Learner::observe(const double* row, std::size_t stop, std::size_t rule_stop,
                         const unsigned char* given, bool may_ask) {
    advance();
    load(row, scratch_);
    correct(given, stop, rule_stop);
    complete(given, stop);
    if (stop >= plan_.grams[0].from) {  // otherwise too soon for any model to learn from
        // Features that no model reads in a round that ended here may describe what a later stage
        // would have revealed. A recorded round has them and a live one does not, and both must
        // leave the same history.
        row_.assign(row, row + plan_.width);
        for (std::size_t g = 0; g < grams_.size(); ++g) {
            const Scope& gram = plan_.grams[g];
            // the first of those with the same features belongs to the earliest arm
            if (gram.from > stop && (g == 0 || plan_.grams[g - 1].offset != gram.offset)) {
                std::fill_n(row_.begin() + static_cast<std::ptrdiff_t>(gram.offset), gram.dim, 0.0);
            }
        }
        history_.append(row_.data(), stop, answers_.data(), rounds_);
        const double now = static_cast<double>(rounds_) + 1.0;
        for (std::size_t g = 0; g < grams_.size(); ++g) {
            const Scope& gram = plan_.grams[g];
            const double* const phi = scratch_.phi[g].data();
            if (gram.arm <= stop && plan_.rate > 0.0) {
                advance(grams_[g], gram.dim, phi, now);
            } else if (gram.arm <= stop) {
                grams_[g].factor.add(phi, 1.0);
                grams_[g].count += 1.0;
            }
            for (std::size_t k = 0; gram.from <= stop && k < models_.size(); ++k) {
                if (plan_.questions[k] == g) models_[k].learn(phi, answers_[k] != 0, now);
            }
        }
    }
    if (plan_.most_rows > 0 && history_.single_rows() > plan_.most_rows) {
        for (std::size_t k = 0; k < models_.size(); ++k) {
            models_[k].summarise({history_, k, scope_of(k), static_cast<double>(rounds_) + 1.0},
                                 effort_);
        }
        history_.drop_old();
    }
    const Request request = may_ask ? ask(stop, std::min(rule_stop, stop), given) : Request{};
    if (request.probability > 0.0) expect(request, stop, std::min(rule_stop, stop), given);
    ++rounds_;
    if (plan_.forced_rounds == kUntilExplored && !explored_) explored_ = explored();
    return request;
}

// Learn how far draws are off, from a round that the rule would have stopped and that went on at
// random. Models have not learned from it yet.
void Learner::correct(const unsigned char* given, std::size_t stop, std::size_t rule_stop) {
    if (corrections_.empty()) return;
    if (plan_.rate > 0.0) {
        const double share = exp(-plan_.rate);
        for (Correction& correction : corrections_) correction.fade(share);
    }
    if (rule_stop == 0) return;  // nothing is drawn for rounds that stop there
    At at(*this, models_, scratch_);
    for (std::size_t j = rule_stop + 1; j <= stop; ++j) {
        const std::size_t question = pair(rule_stop, j);
        if (rule_->against_last() && j + 1 < plan_.n_arms) continue;  // it asks about j and the last
        corrections_[question].learn(rounded_logit(at, question), given[question] != 0);
    }
}

// The answers to all questions of a round that stopped at s. Where stages reveal the context, a
// round that stops early is no random one: what made it stop is known at s, and models of earlier
// arms do not see it. So the round counts for them too, with what arm j > s would have said drawn by
// the model of (s, j), which sees everything known at s: disagreement of s and j is drawn, and i < s
// disagrees with j where exactly one of (i, s) and (s, j) does. Where both do, j may say what i said
// or something else: that is drawn with the share seen so far, and a third answer is taken for granted
// before any was seen (docs/revealed.md).
void Learner::complete(const unsigned char* given, std::size_t stop) {
    answers_.assign(given, given + plan_.questions.size());
    const std::size_t last = plan_.n_arms - 1;
    const bool against_last = rule_->against_last();
    if (stop > 0 && stop < last && !thirds_.empty()) {
        At at(*this, models_, scratch_);
        for (std::size_t j = against_last ? last : stop + 1; j <= last; ++j) {
            const bool differs = draw(at, pair(stop, j), draw_of(plan_.seed, rounds_, j));
            answers_[pair(stop, j)] = differs;
            for (std::size_t i = 0; i < stop; ++i) {
                const bool before = given[pair(i, stop)] != 0;
                answers_[pair(i, j)] = differs != before;
                if (differs && before) {  // the same other answer, or a third
                    const Third& third = thirds_[(i * plan_.n_arms + stop) * plan_.n_arms + j];
                    const double u = draw_of(plan_.seed, rounds_, 16 + i * 16 + j);
                    answers_[pair(i, j)] = u * (third.seen + 1.0) < third.different + 1.0;
                }
            }
        }
    }
    for (std::size_t j = 2; j <= stop && !thirds_.empty(); ++j) {
        for (std::size_t s = 1; s < j; ++s) {
            for (std::size_t i = 0; i < s; ++i) {
                if (given[pair(i, s)] == 0 || given[pair(s, j)] == 0) continue;
                Third& third = thirds_[(i * plan_.n_arms + s) * plan_.n_arms + j];
                third.seen += 1.0;
                third.different += given[pair(i, j)] != 0 ? 1.0 : 0.0;
            }
        }
    }
    if (!against_last) return;
    for (std::size_t j = 1; j < last; ++j) {  // (i, j) asks about j and the last arm
        for (std::size_t i = 0; i < j; ++i) answers_[pair(i, j)] = answers_[pair(j, last)];
    }
}

// Whether u < p̂ for the exact estimate at this context, corrected for rounds that stop.
bool Learner::draw(At& at, std::size_t question, double u) {
    const double threshold = logit(u) - corrections_[question].shift();
    for (int refinements = 0; refinements < kMaxRefinements; ++refinements) {
        const double margin = std::fabs(at.logit(question) - threshold);
        const double error = at.error(question, margin);
        if (error < margin || error <= kExact) break;
        models_[question].refine(source(question), false, refinements >= kPatience, effort_);
        ++at.scratch().sweep;
    }
    return at.logit(question) > threshold;
}

// The logit of p̂ at this context, to the nearest step: the same bits however far the model has been
// refined.
double Learner::rounded_logit(At& at, std::size_t question) {
    const auto step = [](double z) {
        const double within = std::clamp(z, -kLogitRange, kLogitRange);
        return static_cast<std::int64_t>((within + kLogitRange) * kLogitSteps + 0.5);
    };
    for (int refinements = 0; refinements < kMaxRefinements; ++refinements) {
        const double z = at.logit(question), error = at.error(question, 0.0);
        if (step(z - error) == step(z + error) || error <= kExact) break;
        models_[question].refine(source(question), false, refinements >= kPatience, effort_);
        ++at.scratch().sweep;
    }
    return static_cast<double>(step(at.logit(question))) / kLogitSteps - kLogitRange;
}

double Learner::explore_rate() const {
    const double falling = 1.0 / (1.0 + static_cast<double>(rounds_) / kExploreFor);
    return plan_.explore * std::max(falling, thirds_.empty() ? kExploreFloor : kRevealedFloor);
}

// Ask for labels at random among rounds whose arms disagree, more often early; a round that went on
// at random shows arms that the rule would not have seen, and is always asked for.
Request Learner::ask(std::size_t stop, std::size_t rule_stop, const unsigned char* differ) {
    if (plan_.labels == 0.0) return {};
    if (rounds_ >= kTrial && (rounds_ & (rounds_ - 1)) == 0) {  // a trial of the rule ends
        fixed_ = fixed_ < plan_.n_arms ? plan_.n_arms : better_depth();
        depths_.assign(plan_.n_arms, Depth{});
        trial_asked_ = trial_answered_ = 0;
        heaviest_ = 0.0;
        trial_since_ = rounds_;
    }
    const bool in_all = plan_.labels >= 1.0;
    if (in_all && static_cast<double>(asked_) >= plan_.labels) return {};
    for (std::size_t k = 0; k < plan_.n_arms; ++k) {
        depths_[k].cost += plan_.gaps[rule_stop * plan_.n_arms + k];
    }
    bool any = false;
    for (std::size_t j = 1; j <= stop; ++j) any = any || differ[pair(0, j)] != 0;
    if (!any) return {};
    ++disagreed_;
    const double early = in_all ? kEarly * plan_.labels : kEarlyOfRate;
    double chance = std::min(1.0, early / static_cast<double>(disagreed_));
    if (!in_all) chance = std::max(chance, plan_.labels);
    if (rule_stop == stop && draw_of(plan_.seed, rounds_, 0) >= chance) return {};
    ++asked_;
    ++trial_asked_;
    const auto round = static_cast<double>(rounds_);
    if (rule_stop == plan_.n_arms - 1) return {chance, 0.0, round};
    const double explored = explore_rate();
    return {explored + (1.0 - explored) * chance, explored, round};
}

// A label that is missing, or late, counts as the worst that it could say of a depth: that the rule
// was right. With all labels, the sums are unbiased (docs/labels.md).
std::size_t Learner::better_depth() const {
    std::vector<Depth> depths = depths_;
    double heaviest = heaviest_;
    std::int64_t known = trial_answered_;
    for (const WaitingLabel& one : requests_.waiting()) {
        if (one.request.round < static_cast<double>(trial_since_)) continue;
        std::vector<int> losses(one.arms, 0);
        for (std::size_t k = 0; k < one.arms; ++k) {
            if (k == one.rule_stop) continue;
            losses[k] = one.differ[pair(std::min(k, one.rule_stop), std::max(k, one.rule_stop))];
        }
        judge(depths, heaviest, one.request, one.rule_stop, losses);
        ++known;
    }
    std::size_t found = plan_.n_arms;
    if (trial_answered_ == 0 || known < trial_asked_) return found;  // some were dropped
    double least = 0.0;
    for (std::size_t k = 0; k < plan_.n_arms; ++k) {
        const Depth& at = depths[k];
        const double deviation = std::sqrt(at.variance + heaviest * heaviest);
        const double most = at.cost + (at.errors + kConfident * deviation);
        if (most < least) {
            least = most;
            found = k;
        }
    }
    return found;
}

void Learner::judge(std::vector<Depth>& depths, double& heaviest, const Request& request,
                    std::size_t ruled, const std::vector<int>& losses) {
    heaviest = std::max(heaviest, 1.0 / request.probability);
    for (std::size_t k = 0; k < losses.size(); ++k) {
        const double chance = k > ruled ? request.explored : request.probability;
        if (losses[k] == 0 || chance == 0.0) continue;
        const double weight = 1.0 / chance;
        depths[k].errors += losses[k] > 0 ? weight : -weight;
        depths[k].variance += weight * weight;
    }
}

bool Learner::explored() const {
    const double level = rule_->explored() * (1.0 - 1e-9);  // V carries rounding
    return std::all_of(grams_.begin(), grams_.end(),
                       [&](const Gram& gram) { return gram.factor.exceeds(level); });
}

std::vector<Gain> Learner::new_gains() const {
    std::vector<Gain> created;
    for (const std::size_t g : plan_.questions) {
        created.emplace_back(plan_.grams[g].dim, plan_.grams[g].linear, plan_.ridge);
    }
    return created;
}

template <class Function>
void Learner::each_disagreement(const WaitingLabel& label, Function function) {
    for (std::size_t j = 1; j < label.arms; ++j) {
        for (std::size_t i = 0; i < j; ++i) {
            const std::size_t k = pair(i, j);
            if (label.differ[k] == 0) continue;
            function(gains_[k], label.row.data() + plan_.grams[plan_.questions[k]].offset);
        }
    }
}

// Remember a label that is asked for, until it comes. ``row_`` has the features of its round.
void Learner::expect(const Request& request, std::size_t stop, std::size_t rule_stop,
                     const unsigned char* differ) {
    if (gains_.empty()) gains_ = new_gains();
    WaitingLabel label{request, stop + 1, rule_stop, false, row_, {}};
    label.differ.assign(n_pairs(), 0);
    for (std::size_t j = 1; j <= stop; ++j) {
        for (std::size_t i = 0; i < j; ++i) label.differ[pair(i, j)] = differ[pair(i, j)] != 0;
    }
    requests_.add(std::move(label), [&](const WaitingLabel& missing) {
        each_disagreement(missing, [](Gain& gain, const double* phi) { gain.add_missing(phi); });
    });
    for (Gain& gain : gains_) gain.refit();
}

void Learner::label(const double* row, std::size_t n, std::size_t rule_stop,
                    const unsigned char* right, const unsigned char* differ, Request request) {
    if (gains_.empty()) gains_ = new_gains();
    if (request.probability > 0.0) {
        const auto answered = requests_.take(request.round, [&](const WaitingLabel& missing) {
            each_disagreement(missing,
                              [](Gain& gain, const double* phi) { gain.add_missing(phi); });
        });
        if (answered && answered->missing) {
            each_disagreement(*answered,
                              [](Gain& gain, const double* phi) { gain.remove_missing(phi); });
        }
    }
    load(row, scratch_);
    for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t j = i + 1; j < n; ++j) {
            const std::size_t k = pair(i, j);
            if (differ[k] == 0) continue;
            const double* const phi = scratch_.phi[plan_.questions[k]].data();
            gains_[k].learn(phi, (right[j] != 0 ? 1.0 : 0.0) - (right[i] != 0 ? 1.0 : 0.0));
        }
    }
    for (Gain& gain : gains_) gain.refit();
    ++labelled_rounds_;
    // only labels of this trial's rounds count for it: others come too late
    if (request.probability == 0.0 || request.round < static_cast<double>(trial_since_)) return;
    ++trial_answered_;
    const std::size_t ruled = std::min(rule_stop, n - 1);
    std::vector<int> losses(n, 0);
    for (std::size_t k = 0; k < n; ++k) {
        losses[k] = (right[ruled] != 0 ? 1 : 0) - (right[k] != 0 ? 1 : 0);
    }
    judge(depths_, heaviest_, request, ruled, losses);
}

std::vector<double> Learner::theta(std::size_t question) {
    advance();
    Model model = models_[question];
    Effort effort;
    if (!model.solve(source(question), false, effort)) return {};
    const auto begin = model.estimate().begin();
    return {begin, begin + static_cast<std::ptrdiff_t>(scope_of(question).dim)};
}

std::size_t Learner::nbytes() const {
    std::size_t n = sizeof(Learner) + history_.nbytes();
    for (const Gram& gram : grams_) n += gram.factor.nbytes() + gram.sums.size() * sizeof(double);
    for (const Model& model : models_) n += model.nbytes();
    for (const Gain& gain : gains_) n += gain.nbytes();
    n += requests_.nbytes();
    return n;
}

std::vector<unsigned char> Learner::save() {
    Archive to;
    archive(to);
    return std::move(to.bytes);
}

void Learner::restore(const unsigned char* bytes, std::size_t size) {
    Learner fresh(plan_, rule_);  // so that nothing changes if the bytes are bad
    Archive from(bytes, size);
    fresh.archive(from);
    from.end();
    *this = std::move(fresh);
}

void Learner::archive(Archive& with) {
    with.count(rounds_, kMostCounted, "its number of rounds");
    with.count(draws_, kMostCounted, "its number of draws");
    with.count(explored_, 1, "whether it has explored");
    for (std::int64_t* n :
         {&effort_.passes, &effort_.hessians, &effort_.rows_visited, &effort_.settled}) {
        with.count(*n, kMostCounted, "its passes");
    }
    for (std::size_t i = 0; i + 1 < plan_.n_arms; ++i) {
        with.count(beaten_by_[i], static_cast<std::int64_t>(plan_.n_arms) - 1, "an arm");
        with.check(beaten_by_[i] > i, "an arm");
    }
    history_.archive(with, rounds_, kLargest, plan_.most_rows > 0);
    const double start = std::max(rule_->lam(), kFloor);
    for (std::size_t g = 0; g < grams_.size(); ++g) {
        Gram& gram = grams_[g];
        double n = history_.observations(plan_.grams[g].arm);
        if (plan_.rate > 0.0) n = 1.0 + 1.0 / plan_.rate;  // also those that were dropped
        with.between(&gram.count, 1, plan_.rate > 0.0 ? 0.0 : n, n, "a number of observations");
        if (plan_.rate > 0.0) {
            with.between(gram.sums.data(), gram.sums.size(), -kLongest * n, kLongest * n, "a sum");
            with.between(&gram.now, 1, 0.0, static_cast<double>(rounds_), "a number of rounds");
            if (with.reading()) gram.factor = factored(gram.sums, plan_.grams[g].dim);
        } else {
            gram.factor.archive(with, start, start + kLongest * n);
        }
    }
    for (std::size_t k = 0; k < models_.size(); ++k) {
        models_[k].archive(with, history_.observations(scope_of(k).from), kLongest,
                           history_.dropped(0) > 0.0);
    }
    for (std::int64_t* n :
         {&labelled_rounds_, &asked_, &disagreed_, &trial_asked_, &trial_answered_, &trial_since_}) {
        with.count(*n, kMostCounted, "its number of labels");
    }
    for (Third& third : thirds_) {
        with.between(&third.seen, 1, 0.0, 1e15, "a number of third answers");
        with.between(&third.different, 1, 0.0, third.seen, "a number of third answers");
    }
    for (Correction& correction : corrections_) correction.archive(with);
    with.count(fixed_, static_cast<std::int64_t>(plan_.n_arms), "an arm");
    for (Depth& depth : depths_) {
        with.between(&depth.cost, 1, -1e100, 1e100, "what a depth costs");
        with.between(&depth.errors, 1, -1e100, 1e100, "how often a depth errs");
        with.between(&depth.variance, 1, 0.0, 1e100, "a variance");
    }
    with.between(&heaviest_, 1, 0.0, 1e100, "a weight");
    bool any = !gains_.empty();
    with.count(any, rule_->takes_labels() ? 1 : 0, "whether it has labels");
    if (any && with.reading()) gains_ = new_gains();
    for (Gain& gain : gains_) gain.archive(with);
    requests_.archive(with, plan_.n_arms, plan_.width, rounds_, kLargest);
    if (with.reading()) check_missing(with);
}

// Every label that counts as missing must be in the sums of its pairs, from which it is taken out
// when it comes.
void Learner::check_missing(const Archive& with) const {
    std::vector<std::int64_t> missing(n_pairs(), 0);
    with.check(requests_.waiting().empty() || !gains_.empty(), "a request");
    for (const WaitingLabel& one : requests_.waiting()) {
        if (!one.missing) continue;
        for (std::size_t k = 0; k < n_pairs(); ++k) missing[k] += one.differ[k];
    }
    for (std::size_t k = 0; k < gains_.size(); ++k) {
        with.check(missing[k] <= gains_[k].missing(), "its number of missing labels");
    }
}

}  // namespace stopwise
