"""Jinja2 as transformers 5.24 sets it up for chat templates (utils/chat_template_utils.py), rebuilt
from its observable settings so that goldens need jinja2 alone: sandbox, trim_blocks, lstrip_blocks,
loop controls, its tojson, raise_exception, strftime_now, {% generation %}. The clock stands still,
in UTC as ours does. from_json is our own addition (some templates of the census use it)."""
import datetime
import json

import jinja2
import jinja2.ext
import jinja2.sandbox

TIME_S = 1785000000


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("run"), [], [], body).set_lineno(line)

    @jinja2.pass_eval_context
    def run(self, context, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                      sort_keys=sort_keys)


def strftime_now(layout):
    now = datetime.datetime.fromtimestamp(TIME_S, datetime.timezone.utc)
    return now.replace(tzinfo=None).strftime(layout)


def environment(mutable=False):
    """mutable: list.append and the like work, as they do with us and not in transformers."""
    kind = jinja2.sandbox.SandboxedEnvironment if mutable \
        else jinja2.sandbox.ImmutableSandboxedEnvironment
    e = kind(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    e.filters["tojson"] = tojson
    e.filters["from_json"] = json.loads
    e.globals["raise_exception"] = raise_exception
    e.globals["strftime_now"] = strftime_now
    return e


class Outside(Exception):
    """Something that we leave out on purpose was looked at."""


class Hidden:
    """Stands for a generator or a bound method, whose printed form is an address."""

    def __init__(self, inner):
        self.inner = inner

    def __call__(self, *args, **kwargs):
        out = self.inner(*args, **kwargs)
        return View(out) if type(out).__name__ in ("dict_keys", "dict_items") else out

    def __str__(self):
        raise Outside

    __repr__ = __str__


class Stream(Hidden):
    def __iter__(self):
        return self

    def __next__(self):
        return next(self.inner)

    __call__ = None


class View:
    """A dict's view, without the operators of sets."""

    def __init__(self, inner):
        self.inner = inner

    def __iter__(self):
        return iter(self.inner)

    def __len__(self):
        return len(self.inner)

    def __contains__(self, x):
        return x in self.inner

    def __eq__(self, other):
        return self is other

    __hash__ = None

    def __reversed__(self):
        return reversed(self.inner)

    def __repr__(self):
        return repr(self.inner)


def strange_environment():
    """Differs from environment() where we do: what depends on addresses, on Markup, on sets."""
    e = environment()

    def stream(filter_):
        def run(*args, **kwargs):
            return Stream(iter(filter_(*args, **kwargs)))
        for flag in ("jinja_pass_arg",):
            if hasattr(filter_, flag):
                setattr(run, flag, getattr(filter_, flag))
        return run

    for name in ("map", "select", "reject", "selectattr", "rejectattr", "unique", "items"):
        e.filters[name] = stream(e.filters[name])
    reverse = e.filters["reverse"]
    e.filters["reverse"] = lambda v: reverse(v) if isinstance(v, str) else Stream(iter(reverse(v)))
    e.filters["safe"] = str

    def hide(lookup):
        def run(obj, key):
            found = lookup(obj, key)
            return Hidden(found) if type(found).__name__ == "builtin_function_or_method" else found
        return run

    e.getattr, e.getitem = hide(e.getattr), hide(e.getitem)
    return e


def render(env, source, variables):
    """The text, or None where jinja2 refuses."""
    try:
        return env.from_string(source).render(**json.loads(json.dumps(variables)))
    except Exception:
        return None
