import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from rlvr.data.template import Renderer, opened_thought, stop_ids
from rlvr.keys import ConfigError
from rlvr.records import Row
from tests.data.helpers import data, model, source

SPECIAL = ["<bos>", "<eos>", "<end>", "<unk>", "<think>"]
VOCABULARY = {token: i for i, token in enumerate([*SPECIAL, *map(chr, range(32, 127)), "\n"])}
CHAT = (
    "{{ bos_token }}{% for m in messages %}{{ m.role[0] }}:{{ m.content }}<end>{% endfor %}"
    "{% if add_generation_prompt %}a:{% if enable_thinking %}<think>{% endif %}{% endif %}"
)


def tokenizer(chat=CHAT, adds_bos=True, adds_eos=False, bos="<bos>"):
    """One token per character; adds a BOS by itself, as its chat template does too."""
    made = Tokenizer(models.WordLevel(VOCABULARY, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    made.decoder = decoders.Fuse()
    if adds_bos:
        text = "<bos> $A <eos>" if adds_eos else "<bos> $A"
        made.post_processor = processors.TemplateProcessing(text, special_tokens=[("<bos>", 0), ("<eos>", 1)])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=made, bos_token=bos, eos_token="<eos>", pad_token="<eos>", unk_token="<unk>",
        additional_special_tokens=["<end>", "<think>"],
    )  # fmt: skip
    fast.chat_template = chat
    return fast


def row(*messages, id="a/train/0"):
    said = tuple({"role": role, "content": text} for role, text in messages)
    return Row(id=id, source="a", messages=said, answer="1", verifier="number")


def spelled(text, *specials):
    return tuple(VOCABULARY[token] for token in (*specials, *text))


def test_a_template_that_writes_bos_meets_a_tokenizer_that_adds_it():
    prompt = Renderer(tokenizer(), model(chat="template"), data()).render(row(("user", "1+1")))
    assert prompt.tokens == (*spelled("u:1+1", "<bos>"), VOCABULARY["<end>"], *spelled("a:"))
    assert prompt.tokens.count(0) == 1
    assert prompt.text == "<bos>u:1+1<end>a:"


@pytest.mark.parametrize("template", ["{question}", "<bos>{question}"])
def test_bare_text_has_one_bos_whoever_writes_it(template):
    prompt = Renderer(tokenizer(), model(chat="text"), data(template=template)).render(row(("user", "1+1")))
    assert prompt.tokens == spelled("1+1", "<bos>")


def test_bare_text_ends_without_eos_and_gets_no_bos_that_the_tokenizer_would_not_add():
    asked = row(("user", "1+1"))

    def tokens(**keys):
        return Renderer(tokenizer(**keys), model(chat="text"), data()).render(asked).tokens

    assert tokens(adds_eos=True) == spelled("1+1", "<bos>")
    assert tokens(adds_bos=False) == spelled("1+1")
    assert tokens(adds_bos=False, bos=None) == spelled("1+1")


@pytest.mark.parametrize("chat", ["template", "text"])
def test_two_bos_are_an_error(chat):
    made = tokenizer(chat="{{ bos_token }}{{ messages[0].content }}")
    with pytest.raises(ValueError, match=r"a/train/0 starts with two BOS tokens \('<bos>'\)"):
        Renderer(made, model(chat=chat), data(template="<bos><bos>{question}")).render(row(("user", "1+1")))


def test_auto_takes_the_template_if_there_is_one():
    asked = row(("user", "1"))
    assert Renderer(tokenizer(), model(chat="auto"), data()).render(asked).text == "<bos>u:1<end>a:"
    assert Renderer(tokenizer(chat=None), model(chat="auto"), data()).render(asked).text == "<bos>1"
    with pytest.raises(ConfigError, match="model.chat=template: .* has no chat template"):
        Renderer(tokenizer(chat=None), model(chat="template"), data())


def test_chat_kwargs_change_the_ids():
    on, off = (
        Renderer(tokenizer(), model(chat_kwargs={"enable_thinking": flag}), data()).render(row(("user", "1")))
        for flag in (True, False)
    )
    assert on.tokens == (*off.tokens, VOCABULARY["<think>"])
    assert on.text.endswith("a:<think>")


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            dict(chat_kwargs={"enable_thinkin": False}),
            r"enable_thinkin: .* never reads it; did you mean enable_thinking",
        ),
        (dict(chat_kwargs={"tokenize": False}), r"chat_kwargs.tokenize: .*sets it itself"),
        (dict(chat="text", chat_kwargs={"enable_thinking": True}), r"chat_kwargs is set but has no effect"),
    ],
)
def test_chat_kwargs_that_do_nothing_are_refused(keys, message):
    with pytest.raises(ConfigError, match=message):
        Renderer(tokenizer(), model(**keys), data())


def test_the_template_goes_around_the_last_message_and_braces_survive():
    config = data(template="Q {question} {x}", system="be {brief}")
    asked = row(("user", "a"), ("assistant", "b"), ("user", "{y} {question}"))
    made = Renderer(tokenizer(), model(), config).render(asked)
    assert made.text == "<bos>s:be {brief}<end>u:a<end>a:b<end>u:Q {y} {question} {x}<end>a:"
    bare = Renderer(tokenizer(), model(chat="text"), config).render(row(("user", "c")))
    assert bare.text == "<bos>be {brief}\n\nQ c {x}"


def test_two_system_messages_are_refused():
    with pytest.raises(ConfigError, match="row a/train/0 brings its own system message"):
        Renderer(tokenizer(), model(), data(system="s")).render(row(("system", "t"), ("user", "q")))


def test_a_template_without_question():
    with pytest.raises(ConfigError, match=r"data.template='Solve it' does not contain \{question\}"):
        Renderer(tokenizer(), model(), data(template="Solve it"))


def test_the_row_travels_with_its_prompt():
    prompt = Renderer(tokenizer(), model(), data()).render(row(("user", "1"), id="a/test/3"))
    assert (prompt.id, prompt.source, prompt.answer, prompt.verifier) == ("a/test/3", "a", "1", "number")


def test_long_prompts_are_dropped_and_counted_or_stop_the_run():
    rows = [row(("user", "1" * n), id=f"a/train/{n}") for n in (3, 4, 5)]
    made, report = Renderer(tokenizer(), model(chat="text"), data(max_prompt_tokens=5)).render_all(rows)
    assert [prompt.id for prompt in made] == ["a/train/3", "a/train/4"]
    assert (report.kept, report.longest, report.too_long) == (2, 5, (("a/train/5", 6),))
    with pytest.raises(ValueError, match=r"1 of 3 prompts .*max_prompt_tokens=5, for example a/train/5 \(6 tokens\)"):
        Renderer(tokenizer(), model(chat="text"), data(max_prompt_tokens=5, too_long="error")).render_all(rows)
    with pytest.raises(ValueError, match=r"3 of 3 prompts"):
        Renderer(tokenizer(), model(chat="text"), data(max_prompt_tokens=2)).render_all(rows)


@pytest.mark.parametrize(
    ("eos", "stop", "expected"),
    [
        ([1, 2], [], (1, 2)),
        (1, [], (1,)),
        (None, [], (1,)),
        (None, ["<end>"], (1, 2)),
        ([2, 4], ["a"], (1, 2, 4, VOCABULARY["a"])),
    ],
)
def test_stop_ids_are_the_union(eos, stop, expected):
    """pad is eos here: it stays a stop token all the same."""
    made = tokenizer()
    assert made.pad_token_id == made.eos_token_id == 1
    assert stop_ids(made, eos, stop) == expected


def test_stop_tokens_that_do_not_exist():
    with pytest.raises(ConfigError, match=r"model.stop: '<ende>' is not a token of the model; did you mean '<end>'\?"):
        stop_ids(tokenizer(), None, ["<ende>"])
    made = tokenizer()
    made.eos_token = None
    with pytest.raises(ConfigError, match="no end token"):
        stop_ids(made, None, [])


def test_long_prompts_are_cut_at_their_start_and_keep_their_bos():
    config = data(max_prompt_tokens=4, too_long="cut")
    kept, report = Renderer(tokenizer(), model(chat="text"), config).render_all(
        [row(("user", "123456")), row(("user", "1"))]
    )
    assert [prompt.tokens for prompt in kept] == [spelled("456", "<bos>"), spelled("1", "<bos>")]
    assert kept[0].text == "<bos>456"
    assert (report.kept, report.longest, report.too_long) == (2, 4, (("a/train/0", 7),))
    assert "1 too long and cut at their start" in str(report)
    bare = Renderer(tokenizer(adds_bos=False), model(chat="text"), config)
    assert bare.render_all([row(("user", "123456"))])[0][0].tokens == spelled("3456")


@pytest.mark.parametrize(("thinking", "tag"), [(True, "<think>"), (False, "")])
def test_a_thought_that_the_template_opens_is_known(thinking, tag):
    config = model(chat="template", chat_kwargs={"enable_thinking": thinking})
    assert opened_thought(Renderer(tokenizer(), config, data()).render(row(("user", "1"))).text) == tag


@pytest.mark.parametrize(
    ("text", "tag"), [("a<think>\n", "<think>"), ("<think>\n\n</think>\n\n", ""), ("<think> so", ""), ("", "")]
)
def test_only_an_open_tag_at_the_end_counts(text, tag):
    assert opened_thought(text) == tag


def test_a_source_may_have_a_template_of_its_own():
    both = data(template="{question}!", sources={"a": source(template="{question}?"), "b": source()})
    renderer = Renderer(tokenizer(chat=None), model(), both)
    asked = [renderer.render(row(("user", "why"), id=f"{name}/train/0")).text for name in ("a", "b", "elsewhere")]
    assert [text.removeprefix("<bos>") for text in asked] == ["why?", "why!", "why!"]
    with pytest.raises(ConfigError, match=r"data\.sources\.a\.template='q' does not contain"):
        Renderer(tokenizer(), model(), data(sources={"a": source(template="q")}))
