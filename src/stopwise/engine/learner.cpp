#include "learner.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace stopwise {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
// What V starts from without λ: far below any direction seen, far above rounding. An unseen
// direction then has the norm 10⁹, huge but finite: optimism sends such a context deep.
constexpr double kFloor = 1e-18;
constexpr double kSlope = 0.5;  // heuristic: how much the logit of q is expected to vary with x

constexpr double kLongest = 1.01;  // ‖φ‖² ≤ 1, with room for rounding
constexpr double kLargest = 1.001;  // |φ_c| ≤ 1, likewise
const std::vector<Question> kLabelQuestion = {{0, 0, 2, 0}};

// The largest p(1 − 2q) for a logit of p within ± spread and this one of q.
double repair(double at_p, double spread, double at_q) {
    const double gain = 1.0 - 2.0 * sigmoid(at_q);
    return gain * sigmoid(gain > 0.0 ? at_p + spread : at_p - spread);
}

}  // namespace

// The context at hand, seen with some set of models: the learner's own, or refined copies.
class Learner::At final : public View {
public:
    At(const Learner& learner, const std::vector<Model>& models,
       const std::vector<Labelled>& labels, Scratch& scratch, const double* noise)
        : learner_(learner), models_(models), labels_(labels), scratch_(scratch), noise_(noise) {}

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
        const std::size_t g = learner_.plan_.questions[k].gram;
        double& bonus = scratch_.bonuses[g];
        if (bonus < 0.0) {
            const Gram& gram = learner_.grams_[g];
            double& norm = scratch_.norms[g];
            norm = kInfinity;
            if (gram.count > 0.0 || learner_.rule_->lam() > 0.0) {
                const double* x = scratch_.slots.data() + learner_.slots_[g];
                norm = std::sqrt(gram.factor.square_norm(x, scratch_.work.data()));
            }
            bonus = norm == kInfinity ? kInfinity : radius(gram) * norm;
        }
        return bonus;
    }

    double hessian_norm(std::size_t k) override {
        return models_[k].hessian_norm(phi(k), scratch_.work.data());
    }

    double hessian_turn(std::size_t k) override {
        return models_[k].anchored() ? models_[k].hessian_turn() : kInfinity;
    }

    double noise(std::size_t k) const override { return noise_ == nullptr ? 0.0 : noise_[k]; }

    const double* phi(std::size_t k) const {
        return scratch_.slots.data() + learner_.slots_[learner_.plan_.questions[k].gram];
    }

    const Labelled* labelled(std::size_t k) const {
        return labels_.empty() || labels_[k].rounds == 0 ? nullptr : &labels_[k];
    }

    Scratch& scratch() { return scratch_; }

private:
    // ‖φ‖_{H⁻¹} from above, by the ‖φ‖_{V⁻¹} that the bonus needed anyway:
    // H = Σ μ'φφᵀ + ridge·I ≽ min(lightest μ', ridge/base)·(V + base·I).
    double cheap_norm(std::size_t k) {
        const double norm = scratch_.norms[learner_.plan_.questions[k].gram];
        if (norm < 0.0) return kInfinity;  // the rule did not ask for it
        const double base = std::max(learner_.rule_->lam(), kFloor);
        const double share = std::min(models_[k].lightest(), models_[k].ridge() / base);
        return norm / std::sqrt(share);
    }

    double radius(const Gram& gram) {
        const double n = gram.count;
        if (gram.heaviest > 1.0) return learner_.radius_of(gram);
        if (scratch_.radius_of != n) {
            scratch_.radius_of = n;
            scratch_.radius = learner_.radius_of(gram);
        }
        return scratch_.radius;
    }

    const Learner& learner_;
    const std::vector<Model>& models_;
    const std::vector<Labelled>& labels_;
    Scratch& scratch_;
    const double* noise_;
};

Learner::Learner(Plan plan, std::shared_ptr<const Rule> rule)
    : plan_(std::move(plan)), rule_(std::move(rule)), pairs_(plan_.n_arms * plan_.n_arms, 0),
      history_(plan_.n_arms, plan_.width, plan_.questions.size(), plan_.weight) {
    std::size_t k = 0;
    for (std::size_t i = 0; i < plan_.n_arms; ++i) {
        beaten_by_.push_back(i + 1);
        for (std::size_t j = i + 1; j < plan_.n_arms; ++j) pairs_[i * plan_.n_arms + j] = k++;
    }
    for (const double gap : plan_.gaps) thresholds_.push_back(rule_->threshold(gap));
    for (const GramPlan& gram : plan_.grams) {
        grams_.push_back({Factor(gram.dim, std::max(rule_->lam(), kFloor))});
        slots_.push_back(slots_size_);
        for (std::size_t g = 0; g + 1 < slots_.size(); ++g) {  // features that another V has too
            if (plan_.grams[g].offset == gram.offset && plan_.grams[g].dim == gram.dim) {
                slots_.back() = slots_[g];
            }
        }
        if (slots_.back() == slots_size_) slots_size_ += padded(gram.dim);
        widest_ = std::max(widest_, gram.dim);
    }
    for (const Question& question : plan_.questions) models_.emplace_back(question.dim, plan_.ridge);
    scratch_ = scratch();
}

Learner::Scratch Learner::scratch() const {
    Scratch made;
    made.slots.assign(slots_size_, 0.0);
    made.norms.assign(grams_.size(), -1.0);
    made.bonuses.assign(grams_.size(), -1.0);
    made.work.assign(padded(widest_ + 1), 0.0);
    made.label.assign(padded(widest_ + 1), 0.0);
    return made;
}

void Learner::load(const double* row, Scratch& scratch) const {
    for (std::size_t g = 0; g < grams_.size(); ++g) {
        std::copy_n(row + plan_.grams[g].offset, plan_.grams[g].dim,
                    scratch.slots.begin() + static_cast<std::ptrdiff_t>(slots_[g]));
    }
    std::fill(scratch.norms.begin(), scratch.norms.end(), -1.0);
    std::fill(scratch.bonuses.begin(), scratch.bonuses.end(), -1.0);
    scratch.radius_of = -1.0;
}

Source Learner::source(std::size_t question) const {
    const Question& q = plan_.questions[question];
    return {history_, question, q.arm, plan_.grams[q.gram].stage, q.offset};
}

// The question about a pair's labels is stored as a cascade of two arms whose first means nothing; a
// rule that would have stopped there gives the round its weight.
Source Learner::source(const Labelled& labelled) {
    return {labelled.history, 0, 2, 0, 0};
}

// Weighted rows of V have noise whose variance is at most their weight times what V accounts for,
// hence the root of the weight (docs/revealed.md).
double Learner::radius_of(const Gram& gram) const {
    return std::sqrt(gram.heaviest) * rule_->radius(gram.count, static_cast<double>(rounds_));
}

// A gap of one exceeds every probability but one that may be certain; a larger one every one.
bool Learner::wins_always(std::size_t i, std::size_t j) const {
    return plan_.gaps[i * plan_.n_arms + j] > 1.0 && thresholds_[i * plan_.n_arms + j] == kInfinity;
}

bool Learner::forced() const {
    if (plan_.forced_rounds == kUntilExplored) return !explored_;
    return rounds_ < plan_.forced_rounds;
}

std::size_t Learner::decide(const double* row, const double* noise, Noted* noted) {
    for (std::size_t k = 0; k < n_pairs(); ++k) noted[k] = {kNaN, 0.0, 0.0};
    const std::size_t last = plan_.n_arms - 1;
    if (forced()) return last;
    load(row, scratch_);
    At at(*this, models_, labels_, scratch_, noise);
    for (std::size_t i = 0; i < last; ++i) {
        if (passes(at, i, noted)) return i;
    }
    return last;
}

bool Learner::should_stop(const double* row, const double* noise, Noted* noted, std::size_t i) {
    if (forced()) return false;
    load(row, scratch_);
    At at(*this, models_, labels_, scratch_, noise);
    return passes(at, i, noted);
}

// Whether C_j − C_i > p̃_ij for all j > i. One proved loss settles it, so all pairs are looked at
// before any history is, and then the history of the pair that looks most like a loss.
bool Learner::passes(At& at, std::size_t i, Noted* noted) {
    const std::size_t deeper = plan_.n_arms - 1 - i;
    const std::size_t enough = kMaxRefinements * deeper;
    for (std::size_t refinements = 0; refinements <= enough; ++refinements) {
        const bool settle = refinements == enough;  // nothing is gained any more
        std::size_t doubtful = 0;
        double closest = kInfinity;
        // The arm that won over this one last time is likely to do so again: look there first.
        for (std::size_t step = 0; step < deeper; ++step) {
            std::size_t j = beaten_by_[i] + step;
            if (j >= plan_.n_arms) j -= deeper;
            const Comparison found = compare(at, i, j, settle);
            Noted& note = noted[pair(i, j)];
            note = found.noted;
            if (found.verdict == Verdict::loses) {
                beaten_by_[i] = j;
                return false;
            }
            if (found.verdict == Verdict::unsure) {
                note.estimate = kNaN;  // not a comparison that the decision rests on, yet
                if (doubtful == 0 || found.margin < closest) {
                    closest = found.margin;
                    doubtful = j;
                }
            }
        }
        if (doubtful == 0) return true;
        sharpen(at, i, doubtful, refinements >= static_cast<std::size_t>(kPatience) * plan_.n_arms);
    }
    return true;
}

// Compare the gap of (i, j) with its upper value, of which only an interval is known. ``settle``
// decides by the middle of the interval.
Learner::Comparison Learner::compare(At& at, std::size_t i, std::size_t j, bool settle) const {
    const double threshold = thresholds_[i * plan_.n_arms + j];
    const bool always = wins_always(i, j);
    const bool may_have_labels = rule_->takes_labels() && at.labelled(pair(i, j)) != nullptr;
    if (!settle && (always || (threshold == -kInfinity && !may_have_labels))) {
        // no upper value is needed to know this
        return {always ? Verdict::wins : Verdict::loses, 0.0, {kNaN, 0.0, 0.0}};
    }
    const Upper upper = rule_->upper(at, i, j, threshold);
    Comparison found{Verdict::unsure, threshold - upper.value, {upper.estimate, upper.value, 0.0}};
    if (always) {
        found.verdict = Verdict::wins;
    } else if (settle || upper.high - upper.low <= 2.0 * kExact) {
        found.verdict = threshold > upper.value ? Verdict::wins : Verdict::loses;
    } else if (threshold > upper.high) {
        found.verdict = Verdict::wins;
    } else if (threshold <= upper.low) {
        found.verdict = Verdict::loses;
    }
    if (found.verdict != Verdict::wins && may_have_labels) {
        return with_labels(at, i, j, settle, found);
    }
    return found;
}

// Judge a gap that does not win by disagreement alone, by what labels have shown besides. Going on
// from i to j repairs at most p_ij − 2·W_ij with W_ij = P(i right, j wrong), since where arms
// disagree the deeper one may be the one that errs. W_ij = p_ij·q_ij, and labels estimate
// q_ij = P(i right | they disagree), so the gap is compared with the upper end of p(1 − 2q): at
// UCB(p) while LCB(q) < ½, at LCB(p) beyond (docs/audit.md).
Learner::Comparison Learner::with_labels(At& at, std::size_t i, std::size_t j, bool settle,
                                         const Comparison& without) const {
    const std::size_t k = pair(i, j);
    const Labelled* labelled = at.labelled(k);
    const double bonus = at.bonus(k);
    if (bonus == kInfinity) return without;  // nothing of this pair was seen
    const Model& model = labelled->model;
    Scratch& scratch = at.scratch();
    label_features(at.phi(k), plan_.questions[k].dim, scratch.label.data());
    const double error_p = at.error(k, 0.0);
    const double at_p = at.logit(k);
    double error_q = kInfinity, at_q = 0.0;
    if (model.anchored()) {
        const double norm = model.hessian_norm(scratch.label.data(), scratch.work.data());
        const double turn = 0.5 * model.hessian_turn();
        const double caution =
            rule_->label_quantile() * std::sqrt(labelled->heaviest) * norm;
        at_q = model.logit(scratch.label.data()) - caution;
        error_q = model.slack() * norm +
                  caution * (turn < 1.0 ? 2.0 * turn / (2.0 - turn) : exp(turn) - 1.0);
    }
    if ((error_p == kInfinity || !(error_q < kInfinity)) && !settle) {
        return {Verdict::unsure, -kInfinity, {kNaN, 0.0, 0.0}};
    }
    const double value = repair(at_p, bonus, at_q);
    const double gap = plan_.gaps[i * plan_.n_arms + j];
    Comparison found{Verdict::unsure, gap - value,
                     {at_p, at_p + bonus, 0.5 * (sigmoid(at_p + bonus) - value)}};
    if (settle || (error_p <= kExact && error_q <= kExact)) {
        found.verdict = gap > value ? Verdict::wins : Verdict::loses;
    } else if (gap > repair(at_p, bonus + error_p, at_q - error_q)) {
        found.verdict = Verdict::wins;
    } else if (gap <= repair(at_p, bonus - error_p, at_q + error_q)) {
        // the errors may also be of the other sign, which makes the optimism less by as much
        found.verdict = Verdict::loses;
    }
    return found;
}

// Spend one pass over history on the model that leaves pair (i, j) undecided.
void Learner::sharpen(At& at, std::size_t i, std::size_t j, bool cautious) {
    const std::size_t k = pair(i, j);
    const auto blurred = [](double middle, double error) {
        return error == kInfinity ? 1.0 : sigmoid(middle + error) - sigmoid(middle - error);
    };
    if (rule_->takes_labels() && at.labelled(k) != nullptr) {
        Labelled& labelled = labels_[k];
        double off = 1.0;
        if (labelled.model.anchored()) {
            label_features(at.phi(k), plan_.questions[k].dim, scratch_.label.data());
            const double* phi = scratch_.label.data();
            const double norm = labelled.model.hessian_norm(phi, scratch_.work.data());
            off = blurred(labelled.model.logit(phi), labelled.model.slack() * norm);
        }
        if (off > blurred(at.logit(k), at.error(k, 0.0))) {
            labelled.model.refine(source(labelled), true, cautious, effort_);  // reads H itself
            return;
        }
    }
    const std::size_t question = rule_->unsettled(at, i, j);
    models_[question].refine(source(question), rule_->reads_hessian(), cautious, effort_);
}

bool Learner::evidence(const double* row, const double* noise, std::size_t stop,
                       Noted* noted) const {
    Scratch scratch = this->scratch();
    load(row, scratch);
    std::vector<Model> models = models_;
    std::vector<Labelled> labels = labels_;  // their histories are small
    Effort effort;
    bool settled = true;
    for (std::size_t k = 0; k < models.size(); ++k) {
        settled = models[k].solve(source(k), rule_->reads_hessian(), effort) && settled;
    }
    for (Labelled& labelled : labels) {
        if (labelled.rounds == 0) continue;
        settled = labelled.model.solve(source(labelled), true, effort) && settled;
    }
    At at(*this, models, labels, scratch, noise);
    for (std::size_t i = 0; i < plan_.n_arms; ++i) {
        for (std::size_t j = i + 1; j < plan_.n_arms; ++j) {
            noted[pair(i, j)] = i <= stop ? compare(at, i, j, true).noted : Noted{kNaN, 0.0, 0.0};
        }
    }
    return settled;
}

std::vector<Evidence> Learner::explain(const Noted* noted, std::size_t stop) const {
    std::vector<Evidence> all;
    for (std::size_t i = 0; i + 1 < plan_.n_arms && i <= stop; ++i) {
        for (std::size_t j = i + 1; j < plan_.n_arms; ++j) {
            const Noted& note = noted[pair(i, j)];
            if (std::isnan(note.estimate)) continue;
            const double gap = plan_.gaps[i * plan_.n_arms + j];
            const double upper = rule_->shown(note.upper);
            const bool won =
                note.harm > 0.0
                    ? gap > upper - 2.0 * note.harm
                    : wins_always(i, j) || thresholds_[i * plan_.n_arms + j] > note.upper;
            all.push_back({i, j, gap, rule_->shown(note.estimate), upper, won, note.harm});
        }
    }
    return all;
}

void Learner::observe(const double* row, std::size_t stop, std::size_t rule_stop,
                      const unsigned char* answers) {
    if (stop >= plan_.grams[0].arm) {  // otherwise too soon for any model to learn from
        load(row, scratch_);
        // Features that no model reads in a round that ended here may describe what a later stage
        // would have revealed. A recorded round has them and a live one does not, and both must
        // leave the same history.
        row_.assign(row, row + plan_.width);
        for (std::size_t g = 0; g < grams_.size(); ++g) {
            const GramPlan& gram = plan_.grams[g];
            // the first of those with the same features belongs to the earliest arm
            if (gram.arm > stop && (g == 0 || plan_.grams[g - 1].offset != gram.offset)) {
                std::fill_n(row_.begin() + static_cast<std::ptrdiff_t>(gram.offset), gram.dim, 0.0);
            }
        }
        history_.append(row_.data(), stop, rule_stop, answers, plan_.questions);
        for (std::size_t g = 0; g < grams_.size(); ++g) {
            const GramPlan& plan = plan_.grams[g];
            if (plan.arm > stop) continue;
            const auto times = static_cast<double>(
                history_.weight_of(plan.stage, plan.arm, std::min(rule_stop, stop)));
            grams_[g].factor.add(scratch_.slots.data() + slots_[g], times);
            grams_[g].count += times;
            grams_[g].heaviest = std::max(grams_[g].heaviest, times);
        }
        for (std::size_t k = 0; k < models_.size(); ++k) {
            const Question& question = plan_.questions[k];
            if (question.arm > stop) continue;
            const auto times = static_cast<double>(history_.weight_of(
                plan_.grams[question.gram].stage, question.arm, std::min(rule_stop, stop)));
            models_[k].learn(scratch_.slots.data() + slots_[question.gram], answers[k] != 0, times);
        }
    }
    ++rounds_;
    if (plan_.forced_rounds == kUntilExplored && !explored_) explored_ = explored();
}

bool Learner::explored() const {
    const double level = rule_->explored() * (1.0 - 1e-9);  // V carries rounding
    return std::all_of(grams_.begin(), grams_.end(),
                       [&](const Gram& gram) { return gram.factor.exceeds(level); });
}

std::vector<Learner::Labelled> Learner::new_labels() const {
    std::vector<Labelled> made;
    for (const Question& question : plan_.questions) {
        made.push_back({History(3, question.dim + 1, 1, plan_.weight),
                        Model(question.dim + 1, plan_.ridge)});
    }
    return made;
}

// The features of q_ij: a constant, and those of p_ij, which count for less. The ridge is the
// precision of a prior: vague for the constant, kSlope wide for the rest. So q_ij is taken to be
// much the same everywhere until labels show that it is not.
void Learner::label_features(const double* phi, std::size_t d, double* out) const {
    const double shrunk = kSlope * std::sqrt(plan_.ridge);
    out[0] = 1.0;
    for (std::size_t c = 0; c < d; ++c) out[1 + c] = shrunk * phi[c];
    for (std::size_t c = d + 1; c < padded(d + 1); ++c) out[c] = 0.0;
}

void Learner::label(const double* row, std::size_t n, std::size_t rule_stop,
                    const unsigned char* right, const unsigned char* differ) {
    if (labels_.empty()) labels_ = new_labels();
    load(row, scratch_);
    for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t j = i + 1; j < n; ++j) {
            const std::size_t k = pair(i, j);
            if (differ[k] == 0) continue;
            Labelled& labelled = labels_[k];
            const Question& question = plan_.questions[k];
            const std::size_t stage = plan_.grams[question.gram].stage;
            const bool between = stage != kNoStage && i < rule_stop && rule_stop < j;
            label_features(scratch_.slots.data() + slots_[question.gram], question.dim,
                           scratch_.label.data());
            const double times = between ? static_cast<double>(plan_.weight) : 1.0;
            labelled.history.append(scratch_.label.data(), 2, between ? 1 : 2, &right[i],
                                    kLabelQuestion);
            labelled.model.learn(scratch_.label.data(), right[i] != 0, times);
            labelled.heaviest = std::max(labelled.heaviest, times);
            ++labelled.rounds;
        }
    }
    ++labelled_rounds_;
}

std::vector<double> Learner::theta(std::size_t question) const {
    Model model = models_[question];
    Effort effort;
    if (!model.solve(source(question), false, effort)) return {};
    const auto begin = model.estimate().begin();
    return {begin, begin + static_cast<std::ptrdiff_t>(plan_.questions[question].dim)};
}

std::size_t Learner::nbytes() const {
    std::size_t n = sizeof(Learner) + history_.nbytes();
    for (const Gram& gram : grams_) n += gram.factor.nbytes();
    for (const Model& model : models_) n += model.nbytes();
    for (const Labelled& labelled : labels_) {
        n += labelled.history.nbytes() + labelled.model.nbytes();
    }
    return n;
}

std::vector<unsigned char> Learner::save() const {
    Writer to;
    to.put(rounds_);
    to.put<std::int64_t>(explored_ ? 1 : 0);
    for (const std::int64_t n : {effort_.passes, effort_.hessians, effort_.rows_visited}) to.put(n);
    for (std::size_t i = 0; i + 1 < plan_.n_arms; ++i) {
        to.put(static_cast<std::int64_t>(beaten_by_[i]));
    }
    history_.save(to);
    for (const Gram& gram : grams_) {
        to.put(gram.count);
        to.put(gram.heaviest);
        gram.factor.save(to);
    }
    for (const Model& model : models_) model.save(to);
    to.put(labelled_rounds_);
    to.put<std::int64_t>(labels_.empty() ? 0 : 1);
    for (const Labelled& labelled : labels_) {
        to.put(labelled.rounds);
        to.put(labelled.heaviest);
        labelled.history.save(to);
        labelled.model.save(to);
    }
    return std::move(to.bytes);
}

void Learner::restore(const unsigned char* bytes, std::size_t size) {
    constexpr std::int64_t most = kMostCounted;
    Learner fresh(plan_, rule_);  // so that nothing changes if the bytes are bad
    Reader from(bytes, size);
    fresh.rounds_ = from.count(most, "its number of rounds");
    fresh.explored_ = from.count(1, "whether it has explored") == 1;
    Effort& effort = fresh.effort_;
    for (std::int64_t* n : {&effort.passes, &effort.hessians, &effort.rows_visited}) {
        *n = from.count(most, "its passes");
    }
    for (std::size_t i = 0; i + 1 < plan_.n_arms; ++i) {
        const auto j = from.count(static_cast<std::int64_t>(plan_.n_arms) - 1, "an arm");
        if (j <= static_cast<std::int64_t>(i)) throw BadArchive("impossible: an arm");
        fresh.beaten_by_[i] = static_cast<std::size_t>(j);
    }
    const auto weight = static_cast<double>(plan_.weight);
    fresh.history_.restore(from, plan_.questions, fresh.rounds_, kLargest);
    const double start = std::max(rule_->lam(), kFloor);
    for (std::size_t g = 0; g < grams_.size(); ++g) {
        Gram& gram = fresh.grams_[g];
        const double n = fresh.history_.observations(plan_.grams[g].arm, plan_.grams[g].stage);
        from.between(&gram.count, 1, n, n, "a number of observations");
        from.between(&gram.heaviest, 1, 1.0, weight, "a weight");
        gram.factor.restore(from, start, start + kLongest * n);
    }
    for (std::size_t k = 0; k < models_.size(); ++k) {
        fresh.models_[k].restore(from, fresh.grams_[plan_.questions[k].gram].count, kLongest);
    }
    fresh.labelled_rounds_ = from.count(most, "its number of labels");
    if (from.count(1, "whether it has labels") == 1) {
        if (!rule_->takes_labels()) throw BadArchive("impossible: labels");
        fresh.labels_ = new_labels();
        for (Labelled& labelled : fresh.labels_) {
            labelled.rounds = from.count(fresh.labelled_rounds_, "its number of labels");
            from.between(&labelled.heaviest, 1, 1.0, weight, "a weight");
            const double shrunk = kSlope * std::sqrt(plan_.ridge);  // more than 1 with a large ridge
            labelled.history.restore(from, kLabelQuestion, labelled.rounds,
                                     kLargest * std::max(1.0, shrunk));
            if (labelled.history.observations(2, 2) != static_cast<double>(labelled.rounds)) {
                throw BadArchive("impossible: its number of labels");
            }
            const Source all = source(labelled);
            labelled.model.restore(from, labelled.history.observations(all.arm, all.stage),
                                   kLongest * (1.0 + plan_.ridge));
        }
    }
    from.end();
    *this = std::move(fresh);
}

}  // namespace stopwise
