// A learner: the history, one model per question, the labels, and the stopping test.
//
// `decide` or `should_stop`, then `observe`, and perhaps `label`, are one round. Batches (module.cpp)
// call the same functions for every round, so the same events give the same decisions, bit for bit.
// A learner owns its memory and can be copied. It has no lock: threads that share one must take turns.
#pragma once

#include <limits>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "correction.h"
#include "factor.h"
#include "gain.h"
#include "history.h"
#include "label_requests.h"
#include "model.h"
#include "random.h"
#include "rule.h"

namespace stopwise {

inline constexpr std::int64_t kUntilExplored = -1;  // forced_rounds="auto"

// The numbers of a comparison: p̂ and p̃ in the units of the rule, the upper value of the gain on
// disagreement, the arm through which it was won, or −1, and the share of labels that came, if the
// gain is larger for those that are missing, else 1. The estimate is NaN for one that did not take
// place.
struct Noted {
    double estimate, upper, gain, through, response;
};
inline constexpr Noted kNotCompared{std::numeric_limits<double>::quiet_NaN(), 0.0, 1.0, -1.0, 1.0};
// `through` of the first pair where every round stops at one arm, because labels show it is better.
inline constexpr double kFixedByLabels = -2.0;

struct Plan {
    std::size_t n_arms, width;
    std::vector<std::size_t> questions;  // of each question (a pair's, or an arm's) its number of V
    std::vector<Scope> grams;            // of each V what it and its questions read
    std::vector<double> gaps;            // (n_arms, n_arms): C_j − C_i
    double ridge;
    std::int64_t forced_rounds;
    bool transitive;     // whether (i, k) and (k, j) won win (i, j)
    double explore;      // the share of rounds that go to the last arm at random, at the beginning
    double labels;       // how many labels to ask for; below 1: of what share of rounds; 0: none
    std::uint64_t seed;  // of answers drawn, and of labels asked for
    double rate;         // of forgetting: a round that is k rounds old counts for e^{−rate·k}
    std::size_t most_rows;  // to store, of those that are not counted; 0: all

    std::vector<std::size_t> answered_from() const {
        std::vector<std::size_t> stops;
        for (const std::size_t g : questions) stops.push_back(grams[g].from);
        return stops;
    }
};

// A comparison: i, j, the gap, p̂, p̃, whether the gap won, the gain, the arm it won through or −1,
// and the share of labels that came (`Noted`).
using Evidence = std::tuple<std::size_t, std::size_t, double, double, double, bool, double,
                            std::ptrdiff_t, double>;

class Learner {
public:
    Learner(Plan plan, std::shared_ptr<const Rule> rule);

    // Whether the next round goes to the last arm whatever the context.
    bool forced() const;

    // The first arm whose every deeper arm costs more than it could repair:
    //
    //     B = {i : C_j − C_i > p̃_ij(x) for all j > i} ∪ {K},  stop at min B     (the paper, Lemma 2)
    //
    // or, if ``transitive``, with the closure of these comparisons under chains.
    // ``row`` are the features, ``draw`` the number of this decision (`next_draw`), ``noted`` gets the
    // numbers of every comparison (n_pairs of them). Learns nothing.
    std::size_t decide(const double* row, std::int64_t draw, Noted* noted);

    // Whether to stop at arm i, of a row of features known at least that far.
    bool should_stop(const double* row, std::int64_t draw, Noted* noted, std::size_t i);

    // The numbers of every comparison of arms up to ``stop``, with exact estimates; false if an
    // estimate does not settle. Looks only: models are refined in copies.
    bool evidence(const double* row, std::int64_t draw, std::size_t stop, Noted* noted);

    // The comparisons of arms up to ``stop`` that noted numbers describe.
    std::vector<Evidence> explain(const Noted* noted, std::size_t stop) const;

    // Learn from a round that stopped at ``stop`` where the rule itself would have stopped at
    // ``rule_stop``. ``given`` holds for each pair 0 or 1, whether its arms disagreed, or for each
    // arm whether it was wrong; those of arms beyond are not read. Returns whether the round's label
    // is asked for, if the learner ``may_ask``.
    Request observe(const double* row, std::size_t stop, std::size_t rule_stop,
                    const unsigned char* given, bool may_ask = true);

    // Learn from the label of a round in which ``n`` arms ran: which of them were right.
    // ``differ`` holds for each pair whether its arms disagreed, ``request`` what `observe`
    // returned, or {} for a label that was not asked for.
    void label(const double* row, std::size_t n, std::size_t rule_stop, const unsigned char* right,
               const unsigned char* differ, Request request);

    // The number of the next decision, from which its random draws follow. Counts only where a
    // decision draws anything.
    std::int64_t next_draw();
    // Continue the numbers of another learner.
    void continue_draws(const Learner& other) { draws_ = other.draws_; }

    // Whether the round of this decision goes to the last arm, whatever the rule says; a share
    // `explore_rate` of rounds does now.
    bool explores(std::int64_t draw) const;
    double explore_rate() const;

    // θ̂ of a question; empty if it does not settle. Looks only.
    std::vector<double> theta(std::size_t question);

    std::int64_t rounds() const { return rounds_; }
    double effective_rounds() const;  // as they count, with forgetting
    std::int64_t labels() const { return labelled_rounds_; }
    std::int64_t asked() const { return asked_; }
    std::int64_t missing() const { return requests_.missing(); }  // of those asked for
    const Plan& plan() const { return plan_; }
    const Rule& rule() const { return *rule_; }
    Factor gram(std::size_t question);
    double observations(std::size_t question) const { return gram_of(question).count; }
    std::size_t pair(std::size_t i, std::size_t j) const { return pairs_[i * plan_.n_arms + j]; }
    std::size_t n_pairs() const { return plan_.n_arms * (plan_.n_arms - 1) / 2; }
    const Effort& effort() const { return effort_; }
    const History& history() const { return history_; }
    std::size_t nbytes() const;

    std::vector<unsigned char> save();
    // Restore what `save` wrote, into a learner of the same plan.
    void restore(const unsigned char* bytes, std::size_t size);

private:
    struct Gram {
        Factor factor;
        double count = 0.0;  // observations
        Numbers sums = {};   // with forgetting: Σ φφᵀ, and the rounds learned to which it belongs
        double now = 0.0;
    };
    // What stopping every round at one arm would have lost beyond what the rule loses, in all:
    // exactly for the costs, and for the errors by labels, each for as many rounds as one that was
    // asked for speaks for (Horvitz and Thompson).
    struct Depth {
        double cost = 0.0, errors = 0.0, variance = 0.0;
    };
    // Of rounds in which i and s, and s and j disagreed (i < s < j): in how many i and j did.
    struct Third {
        double seen = 0.0, different = 0.0;
    };
    struct Comparison {
        Verdict verdict;
        double margin;
        Noted noted;
    };
    // A comparison that the certificate does not decide yet, and by how much its gap seems to win.
    struct Doubt {
        std::size_t i, j;
        double margin;
    };
    // What is known about a pair at the context at hand. Exactly the unsure verdicts have a doubt:
    // the comparison to refine next.
    struct PairState {
        Verdict verdict = Verdict::unsure;
        std::optional<Doubt> doubt;
        std::size_t sweep = 0;  // in which the verdict was last computed
        int refinements = 0;    // passes over history for the pair's own comparison
    };
    class At;
    struct Normed {  // ‖φ‖_{H⁻¹}, and when it was computed
        double norm = 0.0;
        std::size_t sweep = 0;
    };
    struct Scratch {  // of one context
        std::vector<Numbers> phi;     // the features of each V, padded
        std::vector<double> norms;    // ‖φ‖_{V⁻¹} of each V, < 0 while not computed
        std::vector<double> bonuses;
        std::vector<Gain::Upper> gains;  // of each pair, NaN while not computed
        std::vector<PairState> pairs;
        bool solved = false;         // every regression was solved to the end
        bool settled = false;        // comparisons are by the estimates, whatever the certificate
        std::vector<Normed> normed;  // of each question
        std::size_t sweep = 0;       // changes when an estimate is refined
        Numbers work;
    };

    const Gram& gram_of(std::size_t question) const {
        return grams_[plan_.questions[question]];
    }
    const Scope& scope_of(std::size_t question) const {
        return plan_.grams[plan_.questions[question]];
    }
    Scratch scratch() const;
    void load(const double* row, Scratch& scratch) const;
    Source source(std::size_t question) const {
        return {history_, question, scope_of(question), static_cast<double>(rounds_)};
    }
    void advance();
    void advance(Gram& gram, std::size_t d, const double* phi, double now) const;
    Factor factored(const Numbers& sums, std::size_t d) const;
    double radius_of(const Gram& gram) const;
    bool stops_at(At& at, std::size_t i, Noted* noted);
    PairState against_all(At& at, std::size_t i, Noted* noted);
    const PairState& against(At& at, std::size_t i, std::size_t j, Noted* noted) const;
    Comparison compare(At& at, std::size_t i, std::size_t j) const;
    static std::optional<Doubt> likelier_loss(const std::optional<Doubt>& one,
                                              const std::optional<Doubt>& other);
    static std::optional<Doubt> likelier_win(const std::optional<Doubt>& one,
                                             const std::optional<Doubt>& other);
    void refine(At& at, const Doubt& doubt);
    bool solve(std::vector<Model>& models, Effort& effort) const;
    void correct(const unsigned char* given, std::size_t stop, std::size_t rule_stop);
    void complete(const unsigned char* given, std::size_t stop);
    bool draw(At& at, std::size_t question, double u);
    // What a label says of every depth k: 1 if the rule was right and k wrong, −1 if the other way
    // round. ``losses`` has a number for each arm that ran.
    static void judge(std::vector<Depth>& depths, double& heaviest, const Request& request,
                      std::size_t ruled, const std::vector<int>& losses);
    double rounded_logit(At& at, std::size_t question);
    std::size_t better_depth() const;
    void expect(const Request& request, std::size_t stop, std::size_t rule_stop,
                const unsigned char* differ);
    // Call a function with the gain of each pair that disagreed, and with its features.
    template <class Function>
    void each_disagreement(const WaitingLabel& label, Function function);
    Request ask(std::size_t stop, std::size_t rule_stop, const unsigned char* differ);
    std::vector<Gain> new_gains() const;
    bool explored() const;
    // A standard normal draw for each pair; empty if the rule draws nothing.
    std::vector<double> noise(std::int64_t draw) const;
    void archive(Archive& with);
    void check_missing(const Archive& with) const;

    Plan plan_;
    std::shared_ptr<const Rule> rule_;
    std::vector<std::size_t> pairs_;
    std::vector<double> thresholds_;

    std::int64_t rounds_ = 0;
    std::int64_t draws_ = 0;  // decisions that drew something
    bool explored_ = false;
    History history_;
    std::vector<Gram> grams_;
    std::vector<Model> models_;
    std::vector<Third> thirds_;  // (n_arms, n_arms, n_arms) where stages reveal the context
    std::vector<Correction> corrections_;  // of each question's draws, likewise
    std::vector<Gain> gains_;  // one per pair, or none while no label was asked for or came
    LabelRequests requests_;
    std::int64_t labelled_rounds_ = 0, asked_ = 0;
    std::int64_t disagreed_ = 0;  // rounds in which any two arms disagreed
    // From 2ᵏ to 2ᵏ⁺¹ rounds the rule is on trial against fixed depths. If one is better with
    // confidence, the next 2ᵏ⁺¹ rounds stop there.
    std::size_t fixed_;  // the arm at which every round stops now, or the number of arms
    std::vector<Depth> depths_;
    std::int64_t trial_asked_ = 0, trial_answered_ = 0, trial_since_ = 0;
    double heaviest_ = 0.0;  // the most rounds that one label speaks for
    std::vector<std::size_t> beaten_by_;  // for each arm the deeper arm that last beat it
    Effort effort_;
    Scratch scratch_;
    std::vector<double> row_;             // scratch of `observe`
    std::vector<unsigned char> answers_;  // likewise
};

}  // namespace stopwise
