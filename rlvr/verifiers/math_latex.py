"""A formula in LaTeX -> a sympy expression, by a small recursive-descent parser.

Why not a parser library: the formula must be read as a whole or not at all (a number mined out of a broken formula
makes wrong answers right), nothing in it may be evaluated as Python, sizes must be bounded before sympy computes, and
the antlr runtime that Hydra pins breaks latex2sympy2 on percent signs.

What is not read (sums, integrals, limits, words) raises Unreadable and is compared as text by the caller.
"""

import re
from collections.abc import Callable

import sympy
from sympy import Expr, Integer, Rational, Symbol

MAX_TOKENS = 400
MAX_DEPTH = 40
MAX_BITS = 200_000  # of a number that a power, factorial or binomial may grow to
MAX_FACTORIAL = 10_000
MAX_EXPONENT = 100_000  # of what is not rational
MAX_ARGUMENT = 10**9  # of functions


class Unreadable(ValueError):
    """The text is not a formula that this parser knows, or it is too large to compute."""


_TOKEN = re.compile(r"\s*(?:(\d+(?:\.\d*)?|\.\d+)|(\\[a-zA-Z]+|\\[{}|])|([a-zA-Z])|([-+*/^_(){}\[\]|!=,]))")
_GREEK = re.compile(
    r"(?:var)?(?:alpha|beta|gamma|delta|epsilon|zeta|eta|theta|iota|kappa|lambda|mu|nu|xi|rho|sigma|tau|phi|chi|psi|omega)"
    r"|Gamma|Delta|Theta|Lambda|Xi|Sigma|Phi|Psi|Omega|ell"
)
_FUNCTIONS: dict[str, Callable[[Expr], Expr]] = {
    "sin": sympy.sin, "cos": sympy.cos, "tan": sympy.tan, "cot": sympy.cot, "sec": sympy.sec, "csc": sympy.csc,
    "arcsin": sympy.asin, "arccos": sympy.acos, "arctan": sympy.atan, "arccot": sympy.acot, "sinh": sympy.sinh,
    "cosh": sympy.cosh, "tanh": sympy.tanh, "ln": sympy.log, "log": sympy.log, "exp": lambda x: power(sympy.E, x),
    "lg": lambda x: sympy.log(x) / sympy.log(10),
}  # fmt: skip
_INVERSE = {"sin": sympy.asin, "cos": sympy.acos, "tan": sympy.atan, "cot": sympy.acot}
_TIMES, _OVER = {"*", "\\cdot", "\\times"}, {"/", "\\div"}
_ENDS = {")", "}", "]", "\\}", "\\rfloor", "\\rceil", "=", ",", "+", "-", ""}
_REPEATING = re.compile(r"(\d*)\.(\d*)\\overline\{(\d+)\}")


def parse_latex(text: str) -> Expr:
    """The expression that `text` is as a whole.  `e` is Euler's number, `i` the imaginary unit.

    Raises:
        Unreadable: anything left over, unknown, or too large.
    """
    text = _REPEATING.sub(_repeating, text)
    parser = _Parser(_tokens(text))
    expr = parser.sum()
    if parser.peek():
        raise Unreadable(f"{parser.peek()!r} is left over")
    if expr.has(sympy.nan, sympy.zoo):
        raise Unreadable("undefined")
    return expr


def power(base: Expr, exponent: Expr) -> Expr:
    """base ^ exponent, refused before it is computed if it would be larger than MAX_BITS."""
    if base.is_zero and not exponent.is_positive:
        raise Unreadable("a power of zero")
    if base.is_Rational and exponent.is_Rational and abs(base) != 1:
        if abs(exponent) * _bits(base) > MAX_BITS:
            raise Unreadable("too large a power")
    elif exponent.is_number and base not in (1, -1, sympy.I):
        _bounded(exponent, MAX_EXPONENT)
    return base**exponent


def _bounded(value: Expr, limit: int) -> Expr:
    """`value`, refused if it is a number larger than `limit`: sin(10^(10^10)) needs that many digits."""
    if value.is_number and not value.is_infinite and not abs(value.evalf(10)) <= limit:
        raise Unreadable("too large a number in a function or exponent")
    return value


def _bits(number: Expr) -> int:
    return int(number.p).bit_length() + int(number.q).bit_length() - 1


def _tokens(text: str) -> list[str]:
    tokens, at, text = [], 0, text.strip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if not match:
            raise Unreadable(f"{text[at]!r} is no mathematics")
        tokens.append(match.group(0).strip())
        at = match.end()
    if not tokens or len(tokens) > MAX_TOKENS:
        raise Unreadable("empty" if not tokens else "too long")
    if re.search(r"(?<![\\a-zA-Z])[a-zA-Z]{4,}", text) or "!!" in text:
        raise Unreadable("a word")
    return tokens


def _repeating(match: re.Match[str]) -> str:
    """0.1\\overline{6} as a fraction."""
    whole, head, period = match.groups()
    scale, nines = 10 ** len(head), 10 ** len(period) - 1
    top = int((whole or "0") + head) * nines + int(period)
    return f"\\frac{{{top}}}{{{scale * nines}}}"


class _Parser:
    def __init__(self, tokens: list[str]) -> None:
        self.tokens, self.at, self.depth, self.bars = tokens, 0, 0, 0

    def peek(self, ahead: int = 0) -> str:
        i = self.at + ahead
        return self.tokens[i] if i < len(self.tokens) else ""

    def take(self, expected: str = "") -> str:
        token = self.peek()
        if not token or (expected and token != expected):
            raise Unreadable(f"{expected or 'something'} expected, {token or 'the end'} found")
        self.at += 1
        return token

    def sum(self) -> Expr:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Unreadable("nested too deeply")
        total = self.signed(self.product)
        while self.peek() in ("+", "-"):
            total = total + self.product() if self.take() == "+" else total - self.product()
        self.depth -= 1
        return total

    def signed(self, what: Callable[[], Expr]) -> Expr:
        if self.peek() in ("+", "-"):
            return what() if self.take() == "+" else -what()
        return what()

    def product(self, in_function: bool = False) -> Expr:
        """Factors by sign or side by side; inside a function's bare argument, up to the next function."""
        result = self.factor()
        while (token := self.peek()) not in _ENDS and not (token == "|" and self.bars):
            if in_function and (token.lstrip("\\") in _FUNCTIONS or token in ("(", *_TIMES, *_OVER)):
                break
            if token in _TIMES:
                self.take()
                result = result * self.signed(self.factor)
            elif token in _OVER:
                self.take()
                under = self.signed(self.factor)
                if under.is_zero:
                    raise Unreadable("division by zero")
                result = result / under
            elif (token[0].isdigit() or token[0] == ".") and self.tokens[self.at - 1] not in ("}", "!"):
                raise Unreadable("a number behind a factor")
            else:
                result = result * self.factor()
        return result

    def factor(self) -> Expr:
        base = self.postfix(self.atom())
        if self.takes_degrees():
            return base * sympy.pi / 180
        if self.peek() == "^":
            self.take()
            base = self.postfix(power(base, self.exponent()))
        if self.peek() == "^":
            raise Unreadable("a power of a power without brackets")
        return base

    def postfix(self, base: Expr) -> Expr:
        if self.peek() == "!":
            self.take()
            if base.is_number and not (base.is_Integer and 0 <= base <= MAX_FACTORIAL):
                raise Unreadable("too large a factorial")
            return sympy.factorial(base)
        return base

    def takes_degrees(self) -> bool:
        """Does a degree sign follow, as in \\sin(30)^\\circ?  Takes it."""
        if self.peek() == "^" and "\\circ" in self.tokens[self.at + 1 : self.at + 3]:
            self.take()
            return self.degree_sign()
        return False

    def degree_sign(self) -> bool:
        for sign in (["\\circ"], ["{", "\\circ", "}"]):
            if self.tokens[self.at : self.at + len(sign)] == sign:
                self.at += len(sign)
                return True
        return False

    def exponent(self) -> Expr:
        if self.peek() == "{":
            return self.group("{", "}")
        return self.signed(self.atom)

    def group(self, opened: str, closed: str) -> Expr:
        self.take(opened)
        inner = self.sum()
        self.take(closed)
        return inner

    def argument(self) -> Expr:
        """What \\frac and its kin take: a group, or one digit or letter."""
        if self.peek() == "{":
            return self.group("{", "}")
        token = self.peek()
        if token.isdigit() and len(token) > 1:
            self.tokens[self.at] = token[1:]
            return Integer(token[0])
        return self.atom()

    def atom(self) -> Expr:
        token = self.peek()
        pairs = {"(": ")", "{": "}", "|": "|", "\\lfloor": "\\rfloor", "\\lceil": "\\rceil"}
        if token in pairs:
            self.bars += token == "|"
            inner = self.group(token, pairs[token])
            self.bars -= token == "|"
            if token in ("\\lfloor", "\\lceil"):
                return (sympy.floor if token == "\\lfloor" else sympy.ceiling)(_bounded(inner, MAX_ARGUMENT))
            return sympy.Abs(inner) if token == "|" else inner
        self.take()
        if token[0].isdigit() or token[0] == ".":
            return self.number(token)
        if len(token) == 1 and token.isalpha():
            return self.symbol(token)
        if token.startswith("\\"):
            return self.command(token[1:])
        raise Unreadable(f"{token!r} where a value is expected")

    def number(self, token: str) -> Expr:
        """A numeral; one that is followed by a proper fraction of numerals is a mixed number."""
        if len(token) > 2000:
            raise Unreadable("too long a number")
        value = Rational(token.rstrip(".") if not token.startswith(".") else "0" + token)
        form = self.tokens[self.at : self.at + 7]
        if len(form) == 7 and [form[i] for i in (0, 1, 3, 4, 6)] == ["\\frac", "{", "}", "{", "}"]:
            top, under = form[2], form[5]
            if top.isdigit() and under.isdigit() and int(top) < int(under) and token.isdigit():
                self.at += 7
                return value + Rational(int(top), int(under))
        return value

    def symbol(self, name: str) -> Expr:
        if self.peek() == "_":
            self.take()
            if self.peek() == "{":
                self.take()
                below = ""
                while self.peek() != "}":
                    below += self.take()
                self.take()
            else:
                below = self.take()
            return Symbol(f"{name}_{below}")
        return {"e": sympy.E, "i": sympy.I}.get(name) or Symbol(name)

    def command(self, name: str) -> Expr:
        if name == "pi":
            return sympy.pi
        if name == "infty":
            return sympy.oo
        if _GREEK.fullmatch(name):
            return self.symbol(name)
        if name == "frac":
            top, under = self.argument(), self.argument()
            if under.is_zero:
                raise Unreadable("division by zero")
            return top / under
        if name == "sqrt":
            index = self.group("[", "]") if self.peek() == "[" else Integer(2)
            if index.is_zero:
                raise Unreadable("a zeroth root")
            return power(self.argument(), 1 / index)
        if name == "binom":
            return self.binomial(self.argument(), self.argument())
        if name in _FUNCTIONS:
            return self.function(name)
        raise Unreadable(f"\\{name} is not known")

    def binomial(self, n: Expr, k: Expr) -> Expr:
        if any(x.is_number and not (x.is_Integer and abs(x) <= MAX_FACTORIAL) for x in (n, k)):
            raise Unreadable("too large a binomial")
        return sympy.binomial(n, k)

    def function(self, name: str) -> Expr:
        base, exponent = None, None
        if name == "log" and self.peek() == "_":
            self.take()
            base = self.argument()
        if self.peek() == "^":
            self.take()
            exponent = self.exponent()
        inverse = exponent == -1 and name in _INVERSE
        apply = _INVERSE[name] if inverse else _FUNCTIONS[name]
        inner = self.function_argument()
        value = apply(inner if name in ("ln", "log", "lg") else _bounded(inner, MAX_ARGUMENT))
        if base is not None:
            if base in (0, 1):
                raise Unreadable("a logarithm to this base")
            value = value / sympy.log(base)
        return value if exponent is None or inverse else power(value, exponent)

    def function_argument(self) -> Expr:
        if self.peek() in ("(", "{"):
            inner = self.atom()
            return inner * sympy.pi / 180 if self.takes_degrees() else inner
        return self.signed(lambda: self.product(in_function=True))
