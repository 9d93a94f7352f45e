//! What a fault file may say, and which rules then fire on which requests.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::plan::{Asked, Plan};
use super::{FaultCount, Faults};

fn plan(text: &str) -> Plan {
    Plan::new(Faults::parse(text).unwrap())
}

/// What happens to these requests, one after the other: the action of the hit, or a dash.
fn hits(plan: &Plan, requests: &[(&str, &str)]) -> Vec<&'static str> {
    let ask = |(method, key): &(&str, &str)| Asked { method: (*method).to_owned(), key: (*key).to_owned() };
    requests.iter().map(|asked| plan.decide(&ask(asked)).hit.map_or("-", |hit| hit.rule.kind)).collect()
}

fn counts(plan: &Plan) -> Vec<(u64, u64)> {
    plan.counts().iter().map(|count| (count.matched, count.fired)).collect()
}

#[test]
fn every_key_of_a_rule_is_read() {
    let text = "
        seed = 7
        [[rule]]
        name = 'all of it'
        method = ['PUT', 'POST']
        key = 'a*/b'
        nth = [1, 3]
        after = 1
        until = 2.5
        times = 4
        action = 'status'
        status = 403
        code = 'ExpiredToken'
        [[rule]]
        action = 'delay'
        delay_ms = 5
        every = 2
        [[rule]]
        action = 'stall'
        probability = 1
        [[rule]]
        action = 'stall'
        seconds = 60
        [[rule]]
        action = 'truncate'
        bytes = 0
        [[rule]]
        action = 'slow-body'
        bytes_per_second = 1000
        [[rule]]
        action = 'bandwidth'
        bytes_per_second = 1000
        [[rule]]
        action = 'hide'
        reads = 3
        [[rule]]
        action = 'apply-then-status'
        status = 500
        [[rule]]
        action = 'apply-then-reset'
        [[rule]]
        action = 'reset'
        [[rule]]
        action = 'ignore-condition'
        ";
    let names: Vec<_> = plan(text).counts().into_iter().map(|count| (count.rule, count.action)).collect();
    let rules = |index: usize| (names[index].0.as_str(), names[index].1);
    assert_eq!(rules(0), ("all of it", "status"));
    assert_eq!(rules(11), ("rule 12", "ignore-condition"));
}

#[test]
fn what_is_wrong_with_a_file_is_said_by_rule_and_key() {
    let cases: &[(&str, &[&str])] = &[
        ("", &["[[rule]]"]),
        ("rule = 3", &["rule"]),
        ("[[rule]", &["line 1"]),
        ("seed = -1\n[[rule]]\naction = 'reset'", &["`seed`"]),
        ("seed = 'x'\n[[rule]]\naction = 'reset'", &["`seed`"]),
        ("sede = 1\n[[rule]]\naction = 'reset'", &["sede"]),
        (
            "[[rule]]\naction = 'reset'\n[[rule]]\nmethod = 'GET'",
            &["rule 2:", "`action`", "apply-then-reset"],
        ),
        ("[[rule]]\nname = 'x'\naction = 'explode'", &["rule 1 (`x`)", "`explode`", "apply-then-reset"]),
        ("[[rule]]\naction = \"ex\\nplode\"", &["rule 1:", r"`ex\nplode`"]),
        ("[[rule]]\naction = 'reset'\naction = 'stall'", &["duplicate key", "line 3"]),
        ("[[rule]]\naction = 3", &["rule 1:", "`action`", "text"]),
        ("[[rule]]\nname = ''\naction = 'reset'", &["`name`"]),
        ("[[rule]]\naction = 'reset'\nmethods = 'GET'", &["`methods`"]),
        ("[[rule]]\naction = 'reset'\n\"a\\u001bb\" = 1", &["rule 1:", "`a?b`"]),
        ("[[rule]]\naction = 'reset'\nmethod = 'get'", &["`method`", "GET, HEAD"]),
        ("[[rule]]\naction = 'reset'\nmethod = []", &["`method`"]),
        (
            "[[rule]]\naction = 'truncate'\nbytes = 1\nmethod = 'PUT'",
            &["`method`", "`truncate`", "GET, LIST"],
        ),
        ("[[rule]]\naction = 'hide'\nreads = 1\nmethod = 'LIST'", &["`method`", "`hide`"]),
        ("[[rule]]\naction = 'ignore-condition'\nmethod = 'GET'", &["`method`", "`ignore-condition`"]),
        ("[[rule]]\naction = 'reset'\nkey = ''", &["`key`"]),
        ("[[rule]]\naction = 'reset'\nnth = 0", &["`nth`", "from 1"]),
        ("[[rule]]\naction = 'reset'\nnth = [1, 0]", &["`nth`"]),
        ("[[rule]]\naction = 'reset'\nnth = 1.5", &["`nth`"]),
        ("[[rule]]\naction = 'reset'\nevery = 0", &["`every`"]),
        ("[[rule]]\naction = 'reset'\ntimes = 0", &["`times`"]),
        ("[[rule]]\naction = 'reset'\nprobability = 1.1", &["`probability`", "0 to 1"]),
        ("[[rule]]\naction = 'reset'\nprobability = -0.1", &["`probability`"]),
        ("[[rule]]\naction = 'reset'\nprobability = nan", &["`probability`"]),
        ("[[rule]]\naction = 'reset'\nnth = 1\nevery = 2", &["only one of `nth`"]),
        ("[[rule]]\naction = 'reset'\nnth = 1\nprobability = 0.5", &["only one of `nth`"]),
        ("[[rule]]\naction = 'reset'\nafter = 2\nuntil = 2", &["`until`", "`after`"]),
        ("[[rule]]\naction = 'reset'\nafter = -1", &["`after`"]),
        ("[[rule]]\naction = 'reset'\nuntil = inf", &["`until`"]),
        ("[[rule]]\naction = 'delay'", &["`delay`", "`delay_ms`"]),
        ("[[rule]]\naction = 'delay'\ndelay_ms = 600001", &["`delay_ms`", "600000"]),
        ("[[rule]]\naction = 'delay'\ndelay_ms = 1\nstatus = 500", &["`status`", "`delay`"]),
        ("[[rule]]\naction = 'status'", &["`status`"]),
        ("[[rule]]\naction = 'status'\nstatus = 199", &["`status`", "200 to 599"]),
        ("[[rule]]\naction = 'status'\nstatus = 600", &["`status`"]),
        ("[[rule]]\naction = 'status'\nstatus = 500\ncode = 'a<b'", &["`code`"]),
        ("[[rule]]\naction = 'apply-then-status'", &["`apply-then-status`", "`status`"]),
        ("[[rule]]\naction = 'truncate'", &["`bytes`"]),
        ("[[rule]]\naction = 'truncate'\nbytes = -1", &["`bytes`"]),
        ("[[rule]]\naction = 'slow-body'\nbytes_per_second = 0", &["`bytes_per_second`"]),
        ("[[rule]]\naction = 'stall'\nseconds = 0", &["`seconds`"]),
        ("[[rule]]\naction = 'hide'", &["`hide`", "`reads`"]),
        ("[[rule]]\naction = 'hide'\nreads = 1\nnth = 2", &["`nth`", "`hide`"]),
        ("[[rule]]\nname='a'\naction='reset'\n[[rule]]\nname='a'\naction='reset'", &["`name`", "`a`"]),
        (
            "[[rule]]\nname=\"\\n\"\naction='reset'\n[[rule]]\nname=\"\\n\"\naction='reset'",
            &["`name`", r"`\n`"],
        ),
    ];
    for (text, words) in cases {
        let error = Faults::parse(text).expect_err(text).to_string();
        assert!(!error.contains('\n'), "{error}");
        for word in *words {
            assert!(error.contains(word), "{text:?} gives {error:?}, without {word:?}");
        }
    }
}

#[test]
fn methods_and_keys_decide_what_matches() {
    let plan = plan("[[rule]]\nmethod = ['PUT', 'LIST']\nkey = 'q/*/a*.json'\naction = 'reset'");
    let requests = [
        ("PUT", "q/x/a.json"),
        ("PUT", "q/x/y/ab.json"),
        ("LIST", "q/x/a.json"),
        ("GET", "q/x/a.json"),
        ("PUT", "q/x/b.json"),
        ("PUT", "qq/x/a.json"),
        ("PUT", "q/x/a.jsonl"),
        ("PUT", "q/a.json"),
    ];
    assert_eq!(hits(&plan, &requests), ["reset", "reset", "reset", "-", "-", "-", "-", "-"]);
}

#[test]
fn a_pattern_without_a_star_is_the_whole_key_and_stars_do_not_share_characters() {
    let fires = |pattern: &str, key: &str| {
        let plan = plan(&format!("[[rule]]\nkey = '{pattern}'\naction = 'reset'"));
        hits(&plan, &[("PUT", key)]) == ["reset"]
    };
    assert!(fires("a", "a") && !fires("a", "ab") && !fires("a", "ba") && !fires("a", ""));
    assert!(fires("*", "") && fires("*", "a/b") && fires("**", "a"));
    assert!(fires("a*a", "aa") && !fires("a*a", "a"));
    assert!(fires("*ab*ab*", "abab") && !fires("*ab*ab*", "ab") && !fires("*ab*ab", "abaab/"));
    assert!(fires("*a*b", "aXbYb"));
}

#[test]
fn every_rule_counts_all_its_matches_and_the_first_that_fires_wins() {
    let plan = plan(
        "[[rule]]\nnth = [1, 4]\naction = 'reset'\n\
         [[rule]]\nevery = 2\naction = 'stall'\n\
         [[rule]]\nmethod = 'PUT'\ntimes = 1\naction = 'apply-then-reset'",
    );
    let requests = [("PUT", "a"), ("PUT", "b"), ("PUT", "c"), ("GET", "d"), ("GET", "e"), ("PUT", "f")];
    // The fourth is due by the second rule as well, which the first one leaves nothing of.
    assert_eq!(hits(&plan, &requests), ["reset", "stall", "apply-then-reset", "reset", "-", "stall"]);
    assert_eq!(counts(&plan), [(6, 2), (6, 2), (4, 1)]);
    let first = FaultCount {
        position: 1,
        rule: "rule 1".to_owned(),
        matcher: "nth = [1,4]".to_owned(),
        action: "reset",
        matched: 6,
        fired: 2,
    };
    assert_eq!(plan.counts()[0], first);
}

#[test]
fn delays_add_up_and_leave_the_rest_to_others() {
    let plan = plan(
        "[[rule]]\naction = 'delay'\ndelay_ms = 3\n\
         [[rule]]\naction = 'reset'\n\
         [[rule]]\naction = 'delay'\ndelay_ms = 4\n\
         [[rule]]\naction = 'bandwidth'\nbytes_per_second = 9",
    );
    let asked = Asked { method: "GET".to_owned(), key: "a".to_owned() };
    let decision = plan.decide(&asked);
    assert_eq!(decision.delay.as_millis(), 7);
    assert_eq!(decision.bandwidths.len(), 1);
    assert_eq!(decision.hit.unwrap().rule.kind, "reset");
    assert_eq!(counts(&plan), [(1, 1); 4]);
}

#[test]
fn draws_are_those_of_the_seed_and_of_the_rules_own_matches() {
    let rule = "[[rule]]\nmethod = 'PUT'\nprobability = 0.5\naction = 'reset'\n";
    let draw = |text: &str, between: &[(&str, &str)]| {
        let plan = plan(text);
        (0..64)
            .map(|_| {
                hits(&plan, between);
                hits(&plan, &[("PUT", "a")]) == ["reset"]
            })
            .collect::<Vec<_>>()
    };
    let drawn = draw(&format!("seed = 5\n{rule}"), &[]);
    assert!(drawn.contains(&true) && drawn.contains(&false));
    assert_eq!(drawn, draw(&format!("seed = 5\n{rule}"), &[("GET", "b")]), "others' requests have a say");
    assert_ne!(drawn, draw(&format!("seed = 6\n{rule}"), &[]));
    let twice = format!("seed = 5\n{rule}[[rule]]\nmethod = 'GET'\nprobability = 0.5\naction = 'stall'");
    assert_eq!(drawn, draw(&twice, &[("GET", "b")]), "another rule has a say");
    assert!(draw(&rule.replace("0.5", "0"), &[]).iter().all(|fired| !fired));
    assert!(draw(&rule.replace("0.5", "1"), &[]).iter().all(|fired| *fired));
}

#[test]
fn a_rule_holds_in_its_time_only() {
    let requests = [("GET", "a")];
    assert_eq!(hits(&plan("[[rule]]\nafter = 3600\naction = 'reset'"), &requests), ["-"]);
    assert_eq!(hits(&plan("[[rule]]\nuntil = 3600\naction = 'reset'"), &requests), ["reset"]);
    let over = plan("[[rule]]\nuntil = 0.000001\naction = 'reset'");
    std::thread::sleep(std::time::Duration::from_millis(1));
    assert_eq!(hits(&over, &requests), ["-"]);
    assert_eq!(counts(&over), [(0, 0)], "what comes outside its time is no match");
}

#[test]
fn a_key_is_hidden_as_often_as_asked_and_only_where_it_was_there() {
    let plan = plan("[[rule]]\naction = 'hide'\nreads = 2");
    let asked = |key: &str| Asked { method: "GET".to_owned(), key: key.to_owned() };
    for _ in 0..5 {
        // It isn't there yet.
        let absent = asked("a");
        plan.withdraw(plan.decide(&absent).hit.unwrap(), &absent);
    }
    assert_eq!(counts(&plan), [(5, 0)]);
    assert_eq!(
        hits(&plan, &[("GET", "a"), ("HEAD", "a"), ("GET", "a"), ("GET", "b")]),
        ["hide", "hide", "-", "hide"]
    );
    assert_eq!(counts(&plan), [(9, 3)]);
}

/// The files of `examples/faults` and what `docs/faults.md` shows.
#[test]
fn every_example_is_a_fault_file() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join("docs/faults.md")).unwrap();
    let blocks: Vec<_> =
        page.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(blocks.len() > 5, "the page has other marks than this test looks for");
    for block in blocks {
        Faults::parse(block).unwrap_or_else(|error| panic!("{error}\n{block}"));
    }
    let files: Vec<_> = std::fs::read_dir(root.join("examples/faults")).unwrap().flatten().collect();
    assert!(!files.is_empty());
    for file in files {
        let text = std::fs::read_to_string(file.path()).unwrap();
        Faults::parse(&text).unwrap_or_else(|error| panic!("{}: {error}", file.path().display()));
    }
}

/// The page names each action and each of their values.
#[test]
fn the_page_says_what_there_is() {
    let page = include_str!("../../../../docs/faults.md");
    for name in super::rules::words() {
        assert!(page.contains(&format!("`{name}`")), "docs/faults.md does not speak of `{name}`");
    }
}
