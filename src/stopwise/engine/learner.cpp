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
        return models_[k].hessian_norm(phi(k), scratch_.work.data());
    }
    double hessian_turn(std::size_t k) override {
        return models_[k].anchored() ? models_[k].hessian_turn() : kInfinity;
    }
    double noise(std::size_t k) const override { return noise_ == nullptr ? 0.0 : noise_[k]; }

    const double* phi(std::size_t k) const {
        return scratch_.phi[learner_.plan_.questions[k]].data();
    }
    const Labelled* labelled(std::size_t k) const {
        return labels_.empty() || labels_[k].rounds == 0 ? nullptr : &labels_[k];
    }
    Scratch& scratch() { return scratch_; }

private:
    // ‖φ‖_{H⁻¹} from above, by the ‖φ‖_{V⁻¹} that the bonus needed anyway:
    // H = Σ μ'φφᵀ + ridge·I ≽ min(lightest μ', ridge/base)·(V + base·I).
    double cheap_norm(std::size_t k) {
        const double norm = scratch_.norms[learner_.plan_.questions[k]];
        if (norm < 0.0) return kInfinity;  // the rule did not ask for it
        const double base = std::max(learner_.rule_->lam(), kFloor);
        const double share = std::min(models_[k].lightest(), models_[k].ridge() / base);
        return norm / std::sqrt(share);
    }

    const Learner& learner_;
    const std::vector<Model>& models_;
    const std::vector<Labelled>& labels_;
    Scratch& scratch_;
    const double* noise_;
};

Learner::Learner(Plan plan, std::shared_ptr<const Rule> rule)
    : plan_(std::move(plan)), rule_(std::move(rule)), pairs_(plan_.n_arms * plan_.n_arms, 0),
      history_(plan_.n_arms, plan_.width, plan_.question_arms(), plan_.weight) {
    std::size_t k = 0;
    for (std::size_t i = 0; i < plan_.n_arms; ++i) {
        beaten_by_.push_back(i + 1);
        for (std::size_t j = i + 1; j < plan_.n_arms; ++j) pairs_[i * plan_.n_arms + j] = k++;
    }
    for (const double gap : plan_.gaps) thresholds_.push_back(rule_->threshold(gap));
    for (const Scope& gram : plan_.grams) {
        grams_.push_back({Factor(gram.dim, std::max(rule_->lam(), kFloor))});
    }
    for (const std::size_t g : plan_.questions) {
        models_.emplace_back(plan_.grams[g].dim, plan_.ridge);
    }
    scratch_ = scratch();
}

Learner::Scratch Learner::scratch() const {
    Scratch created;
    std::size_t widest = 0;
    for (const Scope& gram : plan_.grams) {
        created.phi.emplace_back(padded(gram.dim), 0.0);
        widest = std::max(widest, padded(gram.dim + 1));
    }
    created.work.assign(widest, 0.0);
    created.label.assign(widest, 0.0);
    return created;
}

void Learner::load(const double* row, Scratch& scratch) const {
    for (std::size_t g = 0; g < grams_.size(); ++g) {
        std::copy_n(row + plan_.grams[g].offset, plan_.grams[g].dim, scratch.phi[g].begin());
    }
    scratch.norms.assign(grams_.size(), -1.0);
    scratch.bonuses.assign(grams_.size(), -1.0);
    scratch.judged.assign(n_pairs(), Judged{});
    scratch.sweep = 1;
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
    std::fill_n(noted, n_pairs(), kNotCompared);
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

// Whether going on from i is not worth it, whatever the deeper arm. One proved loss settles it, so
// all pairs are looked at before any history is, and then the history of the pair that looks most
// like a loss.
bool Learner::passes(At& at, std::size_t i, Noted* noted) {
    const std::size_t deeper = plan_.n_arms - 1 - i;
    const std::size_t pairs = plan_.transitive ? deeper * (deeper + 1) / 2 : deeper;
    const std::size_t enough = kMaxRefinements * pairs;
    for (std::size_t refinements = 0; refinements <= enough; ++refinements) {
        const bool settle = refinements == enough;  // nothing is gained any more
        ++at.scratch().sweep;
        Doubt doubt;
        // The arm that won over this one last time is likely to do so again: look there first.
        for (std::size_t step = 0; step < deeper; ++step) {
            std::size_t j = beaten_by_[i] + step;
            if (j >= plan_.n_arms) j -= deeper;
            const Judged& judged = judge(at, i, j, settle, noted);
            if (judged.verdict == Verdict::loses) {
                beaten_by_[i] = j;
                return false;
            }
            if (judged.verdict == Verdict::unsure) doubt.add(judged.doubt);
        }
        if (doubt.j == 0) return true;
        const bool cautious = refinements >= static_cast<std::size_t>(kPatience) * plan_.n_arms;
        sharpen(at, doubt.i, doubt.j, cautious);
    }
    return true;
}

// Whether C_j − C_i > p̃_ij or, if ``transitive``, some arm k between them has (i, k) and (k, j) won:
// then C_k − C_i > γ_i − γ_k and C_j − C_k > γ_k − γ_j, which add up (docs/theory.md). Of three
// verdicts, the lesser of two steps is that of a chain, and the greatest of all ways counts.
const Learner::Judged& Learner::judge(At& at, std::size_t i, std::size_t j, bool settle,
                                      Noted* noted) const {
    Judged& judged = at.scratch().judged[pair(i, j)];
    if (judged.verdict != Verdict::unsure || judged.sweep == at.scratch().sweep) return judged;
    const Comparison found = compare(at, i, j, settle);
    Noted& note = noted[pair(i, j)];
    note = found.noted;
    Verdict verdict = found.verdict;
    Doubt doubt;
    if (verdict == Verdict::unsure) doubt = {i, j, found.margin};
    for (std::size_t k = i + 1; plan_.transitive && verdict != Verdict::wins && k < j; ++k) {
        const Judged& first = judge(at, i, k, settle, noted);
        if (first.verdict == Verdict::loses) continue;
        const Judged& second = judge(at, k, j, settle, noted);
        const Verdict chain = std::min(first.verdict, second.verdict);
        if (chain == Verdict::wins) note.through = static_cast<double>(k);
        if (chain == Verdict::unsure) {
            doubt.add(first.doubt);
            doubt.add(second.doubt);
        }
        verdict = std::max(verdict, chain);
    }
    // not a comparison that the decision rests on, yet
    if (found.verdict == Verdict::unsure || verdict == Verdict::unsure) note.estimate = kNaN;
    judged = {verdict, doubt, at.scratch().sweep};
    return judged;
}

// Compare the gap of (i, j) with its upper value; ``settle`` decides whatever the certificate.
Learner::Comparison Learner::compare(At& at, std::size_t i, std::size_t j, bool settle) const {
    const double threshold = thresholds_[i * plan_.n_arms + j];
    const bool always = wins_always(i, j);
    const bool has_labels = rule_->takes_labels() && at.labelled(pair(i, j)) != nullptr;
    if (!settle && (always || (threshold == -kInfinity && !has_labels))) {
        // no upper value is needed to know this
        return {always ? Verdict::wins : Verdict::loses, 0.0, kNotCompared};
    }
    const Upper upper = rule_->upper(at, i, j, threshold);
    const bool exact = settle || upper.high - upper.low <= 2.0 * kExact;
    const Verdict verdict = always ? Verdict::wins : certified(threshold, upper, exact);
    const Comparison found{
        verdict, threshold - upper.value, {upper.estimate, upper.value, 0.0, -1.0}};
    return verdict != Verdict::wins && has_labels ? with_labels(at, i, j, settle, found) : found;
}

// Judge a gap that does not win by disagreement alone, by what labels have shown besides. Going on
// from i to j repairs at most p_ij − 2·W_ij with W_ij = P(i right, j wrong), since where arms
// disagree the deeper one may be the one that errs. W_ij = p_ij·q_ij, and labels estimate
// q_ij = P(i right | they disagree), so the gap is compared with the upper end of p(1 − 2q): at
// UCB(p) while LCB(q) < ½, at LCB(p) beyond (docs/audit.md).
Learner::Comparison Learner::with_labels(At& at, std::size_t i, std::size_t j, bool settle,
                                         const Comparison& without) const {
    const std::size_t k = pair(i, j);
    const double bonus = at.bonus(k);
    if (bonus == kInfinity) return without;  // nothing of this pair was seen
    const Labelled& labelled = *at.labelled(k);
    const double error_p = at.error(k, 0.0);
    const double at_p = at.logit(k);
    double error_q = kInfinity, at_q = 0.0;
    if (labelled.model.anchored()) {
        const auto [logit, norm] = label_estimate(at, k);
        const double caution = rule_->label_quantile() * std::sqrt(labelled.heaviest) * norm;
        at_q = logit - caution;
        error_q = labelled.model.slack() * norm +
                  caution * growth(0.5 * labelled.model.hessian_turn());
    }
    if ((error_p == kInfinity || !(error_q < kInfinity)) && !settle) {
        return {Verdict::unsure, -kInfinity, kNotCompared};
    }
    // the errors may be of either sign, which makes the optimism more or less by as much
    const Upper upper{at_p, repair(at_p, bonus, at_q),
                      repair(at_p, bonus - error_p, at_q + error_q),
                      repair(at_p, bonus + error_p, at_q - error_q)};
    const double gap = plan_.gaps[i * plan_.n_arms + j];
    const bool exact = settle || (error_p <= kExact && error_q <= kExact);
    return {certified(gap, upper, exact), gap - upper.value,
            {at_p, at_p + bonus, 0.5 * (sigmoid(at_p + bonus) - upper.value), -1.0}};
}

// Of the model of a pair's labels: the logit of q at the context, and the norm of its features.
std::pair<double, double> Learner::label_estimate(At& at, std::size_t k) const {
    const Model& model = at.labelled(k)->model;
    double* const phi = at.scratch().label.data();
    label_features(at.phi(k), scope_of(k).dim, phi);
    const double norm = model.hessian_norm(phi, at.scratch().work.data());
    return {model.logit(phi), norm};
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
            const auto [logit, norm] = label_estimate(at, k);
            off = blurred(logit, labelled.model.slack() * norm);
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
    std::fill_n(noted, n_pairs(), kNotCompared);
    ++at.scratch().sweep;
    for (std::size_t i = 0; i <= stop; ++i) {
        for (std::size_t j = i + 1; j < plan_.n_arms; ++j) judge(at, i, j, true, noted);
    }
    return settled;
}

std::vector<Evidence> Learner::explain(const Noted* noted, std::size_t stop) const {
    std::vector<Evidence> all;
    for (std::size_t i = 0; i + 1 < plan_.n_arms && i <= stop; ++i) {
        for (std::size_t j = i + 1; j < plan_.n_arms; ++j) {
            const Noted& note = noted[pair(i, j)];
            if (std::isnan(note.estimate)) continue;
            const std::size_t ij = i * plan_.n_arms + j;
            const double gap = plan_.gaps[ij], upper = rule_->shown(note.upper);
            const bool won = note.through >= 0.0 ||
                             (note.harm > 0.0 ? gap > upper - 2.0 * note.harm
                                              : wins_always(i, j) || thresholds_[ij] > note.upper);
            all.emplace_back(i, j, gap, rule_->shown(note.estimate), upper, won, note.harm,
                             static_cast<std::ptrdiff_t>(note.through));
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
            const Scope& gram = plan_.grams[g];
            // the first of those with the same features belongs to the earliest arm
            if (gram.arm > stop && (g == 0 || plan_.grams[g - 1].offset != gram.offset)) {
                std::fill_n(row_.begin() + static_cast<std::ptrdiff_t>(gram.offset), gram.dim, 0.0);
            }
        }
        history_.append(row_.data(), stop, rule_stop, answers);
        for (std::size_t g = 0; g < grams_.size(); ++g) {
            if (plan_.grams[g].arm > stop) continue;
            const double* const phi = scratch_.phi[g].data();
            const auto times = static_cast<double>(
                history_.weight_of(plan_.grams[g], std::min(rule_stop, stop)));
            grams_[g].factor.add(phi, times);
            grams_[g].count += times;
            grams_[g].heaviest = std::max(grams_[g].heaviest, times);
            for (std::size_t k = 0; k < models_.size(); ++k) {
                if (plan_.questions[k] == g) models_[k].learn(phi, answers[k] != 0, times);
            }
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
    std::vector<Labelled> created;
    for (const std::size_t g : plan_.questions) {
        const std::size_t d = plan_.grams[g].dim + 1;
        created.push_back({History(3, d, {kLabelScope.arm}, plan_.weight), Model(d, plan_.ridge)});
    }
    return created;
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
            const Scope& scope = scope_of(k);
            const bool between = scope.stage != kNoStage && i < rule_stop && rule_stop < j;
            label_features(scratch_.phi[plan_.questions[k]].data(), scope.dim,
                           scratch_.label.data());
            const double times = between ? static_cast<double>(plan_.weight) : 1.0;
            labelled.history.append(scratch_.label.data(), 2, between ? 1 : 2, &right[i]);
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
    return {begin, begin + static_cast<std::ptrdiff_t>(scope_of(question).dim)};
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
    with.count(explored_, 1, "whether it has explored");
    for (std::int64_t* n : {&effort_.passes, &effort_.hessians, &effort_.rows_visited}) {
        with.count(*n, kMostCounted, "its passes");
    }
    for (std::size_t i = 0; i + 1 < plan_.n_arms; ++i) {
        with.count(beaten_by_[i], static_cast<std::int64_t>(plan_.n_arms) - 1, "an arm");
        with.check(beaten_by_[i] > i, "an arm");
    }
    const auto weight = static_cast<double>(plan_.weight);
    history_.archive(with, rounds_, kLargest);
    const double start = std::max(rule_->lam(), kFloor);
    for (std::size_t g = 0; g < grams_.size(); ++g) {
        Gram& gram = grams_[g];
        const double n = with.reading() ? history_.observations(plan_.grams[g]) : gram.count;
        with.between(&gram.count, 1, n, n, "a number of observations");
        with.between(&gram.heaviest, 1, 1.0, weight, "a weight");
        gram.factor.archive(with, start, start + kLongest * n);
    }
    for (std::size_t k = 0; k < models_.size(); ++k) {
        models_[k].archive(with, gram_of(k).count, kLongest);
    }
    with.count(labelled_rounds_, kMostCounted, "its number of labels");
    bool any = !labels_.empty();
    with.count(any, rule_->takes_labels() ? 1 : 0, "whether it has labels");
    if (any && with.reading()) labels_ = new_labels();
    const double shrunk = kSlope * std::sqrt(plan_.ridge);  // more than 1 with a large ridge
    for (Labelled& labelled : labels_) {
        with.count(labelled.rounds, labelled_rounds_, "its number of labels");
        with.between(&labelled.heaviest, 1, 1.0, weight, "a weight");
        labelled.history.archive(with, labelled.rounds, kLargest * std::max(1.0, shrunk));
        const auto seen = [&](std::size_t stage) {
            return labelled.history.observations({0, 0, kLabelScope.arm, stage});
        };
        with.check(seen(kNoStage) == static_cast<double>(labelled.rounds), "its number of labels");
        labelled.model.archive(with, seen(kLabelScope.stage), kLongest * (1.0 + plan_.ridge));
    }
}

}  // namespace stopwise
