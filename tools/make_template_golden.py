#!/usr/bin/env python3
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/chat_templates/cases.json: chat templates of our own that use what the interpreter in
src/io/data/chats/template knows, and what transformers and jinja2 make of them.

    pip install jinja2==3.1.6 transformers==5.24.0
    tools/make_template_golden.py tests/golden/chat_templates

A case has `template`, `input` (the name of a chat in `inputs`), and either `text` with `spans` (bytes of
generation blocks) or `error`, the name of jinja2's exception. The clock stands at NOW.
"""

import datetime
import json
import pathlib
import sys

import transformers.utils.chat_template_utils as utils

NOW = 1783000000

TOOL = {"type": "function", "function": {
    "name": "weather", "description": "The weather \"now\" <b> & 'then'\n",
    "parameters": {"type": "object", "required": ["city"], "properties": {
        "city": {"type": "string", "description": "日本 é 🎉"}, "days": {"type": "integer", "enum": [1, 2]}}}}}

INPUTS = {
    "chat": {
        "messages": [
            {"role": "system", "content": " Be brief.\n"},
            {"role": "user", "content": "Grüße 🎉 <b> & \"q\" 'a'\n"},
            {"role": "assistant", "content": "", "reasoning_content": "why\tnot", "tool_calls": [
                {"id": "a1", "type": "function", "function": {
                    "name": "weather", "arguments": {"city": "Köln", "days": 2, "x": [1, 2.5, None, True, {}, []]}}}]},
            {"role": "tool", "content": "sunny", "tool_call_id": "a1"},
            {"role": "assistant", "content": "<think>\nit is\n</think>\n\nSunny."},
        ],
        "tools": [TOOL], "documents": None, "add_generation_prompt": True,
        "strings": {"bos_token": "<s>", "eos_token": "</s>"},
        "variables": {
            "n": 7, "f": 2.5, "nothing": None, "yes": True, "text": "Hello, World", "uni": "Äñß日🎉",
            "numbers": [3, 1, 2, 3], "words": ["b", "A", "c", "a"], "empty": "", "none_list": [],
            "d": {"b": 1, "A": [1, "x"], "items": "shadow", "c": {"deep": {"er": 5}}},
            "people": [{"name": "Bo", "age": 3, "tags": ["x", "y"]}, {"name": "al", "age": 1},
                       {"name": "Cy", "age": 2, "tags": []}],
            "reals": [0.1, 1e16, 1e-5, 123456789.125, 1e22, -0.0001, 100.0, 1.7976931348623157e308, 5e-324]}},
}

# A line is a template; behind the first ---, what stands between two of them. Where jinja2 raises, so must we.
TEMPLATES = r"""
a {{ n }} b
{{ 'x' }}{{ "y\n\t\\\"\x41\u00e9\U0001F389\101\q" }}{{ 'joined ' 'strings' }}
{{ 1_000 + 2 }} {{ 1.5e3 }} {{ 2e-7 }} {{ 0 }} {{ .5 if false }}|{{ 3.0 }} {{ 1E2 }}
{{ [1, 'a', "it's", 'q"', none, True, 1.0, (1,), (), {'k': [2]}, undefined_thing] }}
{{ ['\\ \n \r \t \x07 \x7f é 🎉 \u200b \u2028', 'a\'b"c'] }}
{{ reals }} {{ reals | tojson }}
{{ 1 + 2 * 3 - 4 / 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 2 ** 10 }} {{ 2 ** -1 }}
{{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 1 / 3 }} {{ 2 ** 0.5 }} {{ True + 1 }} {{ -true }} {{ +3 }} {{ - - 3 }} {{ -2 ** 2 }}
{{ 'a' ~ 1 ~ none ~ 2.0 ~ [1] ~ missing }} {{ 'a' + 'b' }} {{ [1] + [2] }} {{ (1,) + (2,) }} {{ 'ab' * 3 }} {{ 2 * [0] }} {{ 'x' * -1 }}
{{ 1 + '1' }}
{{ 'a' + 1 }}
{{ missing + 1 }}
{{ 1 // 0 }}
{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 == 1.0 }} {{ 'a' < 'b' }} {{ 1 != 2 }} {{ 2 >= 2 }} {{ True == 1 }} {{ '1' == 1 }}
{{ {'a': 1} == {'a': 1.0} }} {{ (1, 2) == [1, 2] }} {{ none == none }} {{ missing == other }} {{ missing == none }}
{{ 1 < 'a' }}
{{ missing < 1 }}
{{ none < 1 }}
{{ 'a' in 'cat' }} {{ 2 in numbers }} {{ 'b' in d }} {{ 'zz' not in d }} {{ 1 in (1, 2) }} {{ 'x' in missing }} {{ missing in numbers }}
{{ 1 in 'a' }}
{{ 1 in none }}
{{ 'x' or 'y' }} {{ '' or 'y' }} {{ 0 and 1 }} {{ 1 and 2 }} {{ not '' }} {{ not 1 == 2 }} {{ not 1 in numbers }} {{ none or missing or [] }}
{{ 'a' if n > 3 else 'b' }} {{ 'a' if n < 3 }}| {{ 'a' if 0 else 'b' if 0 else 'c' }} {{ ('x' if 0) is defined }}
{{ missing }}|{{ missing | length }}|{{ missing | default('z') }}|{{ d.nope }}|{{ d.nope is defined }}|{{ none | default('q') }}|{{ none | d('q', true) }}|{{ '' | default('e', boolean=True) }}
{{ missing.x }}
{{ missing['x'] }}
{{ missing() }}
{{ d.nope.nope }}
{{ none.x }}|{{ n.x }}|{{ 'abc'.x }}|{{ numbers.x }}|{{ none['x'] }}|{{ none[0] }}|{{ n[0] }}
{% for x in missing %}{{ x }}{% else %}empty{% endfor %}
{% for x in none %}{{ x }}{% endfor %}
{% for x in 5 %}{{ x }}{% endfor %}
{{ d['items'] }}|{{ d.b }}|{{ d['A'][1] }}|{{ d.c.deep.er }}|{{ d['keys'] is defined }}|{{ d.c.items is defined }}|{{ d.items() is defined }}
{{ d.c.items() }} {{ d.c.keys() }} {{ d.c.values() }} {{ d.get('b') }} {{ d.get('q') }} {{ d.get('q', 5) }} {{ d.c.keys() | list }} {{ d.c.items() | length }}
{{ text[0] }}{{ text[-1] }}{{ text[99] }}{{ text[1:4] }}{{ text[:-7] }}{{ text[::-1] }}{{ text[-3:] }}{{ text[5:2] }}{{ text[::2] }}{{ text[10:0:-3] }}
{{ uni[0] }}{{ uni[-1] }}{{ uni[1:3] }}{{ uni[::-1] }}{{ uni | length }}{{ uni[3:] }}{{ uni | upper }}{{ uni | lower }}{{ uni.title() }}
{{ numbers[0] }}{{ numbers[-1] }}{{ numbers[1:] }}{{ numbers[::-1] }}{{ numbers[::2] }}{{ numbers[9] }}{{ numbers[True] }}{{ (1, 2, 3)[1:] }}{{ numbers.0 }}{{ range(9)[2:5] | list }}
{{ numbers[::0] }}
{{ nothing[1:] }}
{{ d[1:] }}
{{ numbers['x'] }}|{{ numbers[1.0] }}|{{ d[1] }}|{{ d[n] }}|{{ numbers[none] }}
{% for i in range(3) %}{{ i }}{% endfor %} {{ range(2, 8, 3) | list }} {{ range(3, 0, -1) | list }} {{ range(3) | length }} {{ range(0) | list }}
{{ range(100001) }}
{{ range(1, 2, 0) }}
{% for m in messages %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }}{{ loop.cycle('a', 'b') }};{% endfor %}
{% for m in messages %}{{ loop.previtem.role if loop.previtem is defined }}<{{ m.role }}>{{ loop.nextitem.role if not loop.last }};{% endfor %}
{% for i in numbers if i > 1 %}{{ i }}{{ loop.length }}{{ loop.first }}{% else %}none{% endfor %}{% for i in numbers if i > 9 %}x{% else %}none{% endfor %}
{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}
{% for k in d.c %}{{ k }}{% endfor %}{% for c in uni %}{{ c }}.{% endfor %}{% for a, b in ['xy', 'zw'] %}{{ b }}{{ a }}{% endfor %}
{% for a, b in [(1, 2, 3)] %}{% endfor %}
{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}
{% for i in [1, 2] %}{% for j in [3, 4] %}{{ i }}{{ j }}{{ loop.index }}{% if j == 3 %}{% continue %}{% endif %}{% break %}{% endfor %}{{ loop.index }};{% endfor %}
{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = 5 %}{{ x }}{% endfor %}{{ x }}{% if true %}{% set x = 9 %}{% endif %}{{ x }}
{% set ns = namespace(a=1, b='x') %}{% for i in numbers %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }}{{ ns.b }}{{ ns['a'] }}{{ ns.q }}{{ ns.q is defined }}
{% set ns = namespace({'k': 2}, z=3) %}{{ ns.k }}{{ ns.z }}{% set ns.k, ns.z = 8, 9 %}{{ ns.k }}{{ ns.z }}
{% set ns = {} %}{% set ns.a = 1 %}
{% set ns = namespace() %}{% set ns._a = 1 %}
{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set t = 1, %}{{ t }}{% set (a, b) = [3, 4] %}{{ a }}{{ b }}
{% set a, b = 1 %}
{% set x %}in {{ n }}{% endset %}[{{ x }}]{% set y | upper | replace('I', 'o') %}in {{ n }}{% set q = 3 %}{% endset %}[{{ y }}]{{ q }}
{% filter upper %}abc{{ text }}{% endfilter %}{% filter replace('a', 'b') | trim %} aaa {% endfilter %}
{% raw %}{{ n }} {% if %} {# c #}{% endraw %}|{%- raw -%}  x  {%- endraw -%}  |
{% macro f(a, b=2, c=a) %}[{{ a }}{{ b }}{{ c }}]{% endmacro %}{{ f(1) }}{{ f(1, 3) }}{{ f(1, c=9) }}{{ f(a='x', b='y') }}{{ f() }}
{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, 2) }}
{% macro f(a) %}{{ a }}{% endmacro %}{{ f(b=2) }}
{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, a=2) }}
{% set g = 1 %}{% macro f() %}{{ g }}{% set g = 3 %}{{ g }}{% endmacro %}{{ f() }}{{ g }}{% set g = 2 %}{{ f() }}{{ f is defined }}{{ f is callable }}
{% macro fact(k) %}{{ k }}{% if k > 1 %}*{{ fact(k - 1) }}{% endif %}{% endmacro %}{{ fact(5) }}{{ fact(3) | length }}
{% macro show(x) %}<{{ caller(x) }}>{% endmacro %}{% call(v) show(3) %}v={{ v }}{{ n }}{% endcall %}{% macro two() %}{{ caller() }}{{ caller() }}{% endmacro %}{% call two() %}z{% endcall %}
{% macro no() %}x{% endmacro %}{% call no() %}y{% endcall %}
{% macro f(x) %}{% if x is mapping %}{% for k, v in x.items() %}{{ k }}:{{ f(v) }},{% endfor %}{% else %}{{ x }}{% endif %}{% endmacro %}{{ f({'a': {'b': 1, 'c': {'d': 2}}}) }}
{% macro f(a, b) %}{{ a }}-{{ b }}{% endmacro %}{{ f(*[1, 2]) }}{{ f(**{'a': 3, 'b': 4}) }}{{ f(5, *(6,)) }}
{{ tools | tojson }}
{{ tools[0] | tojson(indent=2) }}
{{ messages | tojson(ensure_ascii=True, sort_keys=True) }}
{{ {'b': 1, 'a': [{}, [], ()], 'c': none, 1: 2, true: 3, none: 4, 1.5: 5} | tojson }}{{ {'b': [1, {'x': 2}], 'a': []} | tojson(indent=4, sort_keys=true) }}{{ [1, {'a': 2}] | tojson(separators=(',', ':')) }}{{ [1] | tojson(indent=0) }}{{ [1] | tojson(indent='--') }}
{{ '\x00\x1f\x7f"\\/\b\f\n\r\té🎉\u2028' | tojson }}{{ '🎉é\x7f' | tojson(ensure_ascii=true) }}
{{ missing | tojson }}
{{ (messages | selectattr('role', 'equalto', 'user')) | tojson }}
{{ d.keys() | tojson }}
{{ '  a b ' | trim }}|{{ 'xxaxx' | trim('x') }}|{{ '\u00a0\u3000a\x1c' | trim }}|{{ none | trim }}|{{ 5 | string }}|{{ [1] | string }}
{{ 'hello wORLD foo-bar (baz' | title }} {{ "it's o'neil" | title }} {{ "it's o'neil".title() }} {{ 'hELLO wORLD' | capitalize }} {{ 'a' | upper }}{{ 'B' | lower }}{{ 'straße' | upper }}
{{ 'aXbXc' | replace('X', '--') }} {{ 'aXbXc' | replace('X', '-', 1) }} {{ 'abc' | replace('', '-') }} {{ 5 | replace('5', '6') }}
{{ '3' | int }} {{ '3.7' | int }} {{ 'x' | int }} {{ 'x' | int(9) }} {{ 3.9 | int }} {{ '2.5' | float }} {{ 'x' | float }} {{ none | int }} {{ true | int }} {{ ' 42 ' | int }} {{ '' | int }} {{ '1e3' | int }}
{{ numbers | list }}{{ 'abc' | list }}{{ d.c | list }}{{ (1, 2) | list }}{{ numbers | first }}{{ numbers | last }}{{ none_list | first }}|{{ none_list | last }}|{{ 'abc' | first }}{{ 'abc' | last }}{{ numbers | reverse | list }}{{ 'abc' | reverse }}
{{ numbers | map('string') | join(',') }} {{ people | map(attribute='name') | list }} {{ people | map(attribute='tags.0', default='-') | list }} {{ words | map('upper') | join }} {{ words | map('replace', 'a', 'z') | list }} {{ people | map(attribute='tags') | list }}
{{ people | map('nofilter') | list }}
{{ people | selectattr('tags') | map(attribute='name') | join(' ') }} {{ people | rejectattr('tags') | list | length }} {{ people | selectattr('age', 'gt', 1) | map(attribute='name') | list }} {{ people | selectattr('tags', 'defined') | list | length }} {{ people | rejectattr('name', 'in', ['Bo', 'al']) | list | length }}
{{ numbers | select('odd') | list }} {{ numbers | reject('equalto', 3) | list }} {{ [0, 1, ''] | select | list }} {{ none | select | list }} {{ words | select('in', 'ab') | list }} {{ [0, 1] | reject | list }}
{{ (numbers | select('odd')) | length }}
{% if people | selectattr('age', 'gt', 99) %}yes{% endif %}{% set it = numbers | map('string') %}{{ it | join }}|{{ it | join }}|{{ it is iterable }}{{ it is sequence }}
{{ d.c | items | list }} {{ missing | items | list }} {{ d | dictsort }} {{ d.c | dictsort }} {{ {'b': 2, 'a': 3} | dictsort(by='value') }} {{ {'b': 2, 'a': 3} | dictsort(reverse=true) }} {{ {'b': 1, 'B': 2, 'a': 0} | dictsort(true) }}
{{ none | items | list }}
{{ numbers | sort }} {{ numbers | sort(reverse=true) }} {{ words | sort }} {{ words | sort(case_sensitive=true) }} {{ people | sort(attribute='age') | map(attribute='name') | list }} {{ people | sort(true, false, 'name') | map(attribute='name') | list }}
{{ [1, 'a'] | sort }}
{{ numbers | unique | list }} {{ words | unique | list }} {{ words | unique(true) | list }} {{ numbers | min }} {{ numbers | max }} {{ words | min }} {{ [] | max }}| {{ people | max(attribute='age') }}
{{ 'a\nb\n\nc' | indent }}|{{ 'a\nb' | indent(2, true) }}|{{ 'a\n\nb' | indent('--', blank=true) }}|{{ 'a\nb\n' | indent(first=true) }}|{{ 'a\r\nb' | indent(1) }}
{{ '<a href="x">\'&' | escape }} {{ '<' | e }} {{ '<b>' | safe }} {{ '<b>' | safe + '<i>' }} {{ '<i>' + ('<b>' | safe) }} {{ ('<b>' | safe) ~ '<i>' }} {{ ('<b>' | e) | e }} {{ ('<b>' | safe | trim) + '&' }} {{ ('<b>' | safe | string).strip() + '&' }} {{ 5 | safe }} {{ ['<' | safe, '<' | e] }}
{{ [1, none, 'x', 2.0, true] | join('-') }} {{ people | join(', ', attribute='name') }} {{ 'abc' | join('.') }} {{ missing | join }} {{ [] | join(',') }}
{{ 5 | length }}
{{ none | length }}
{{ 'a,b,,c'.split(',') }} {{ ' a  b c '.split() }} {{ 'a b c'.split(' ', 1) }} {{ 'a b c'.split(maxsplit=1) }} {{ 'a-b-c'.rsplit('-', 1) }} {{ 'a-b'.rsplit('-', 5) }} {{ 'a-b'.rsplit('-') }} {{ 'a-b'.rsplit('-', 0) }} {{ 'abc'.split('x') }} {{ ''.split() }} {{ ''.split(',') }} {{ 'a<x>b<x>c'.split('<x>')[-1] }}
{{ 'a'.split('') }}
{{ '  x '.strip() }}|{{ '  x '.lstrip() }}|{{ '  x '.rstrip() }}|{{ 'xyax'.strip('xy') }}|{{ 'xa'.lstrip('x') }}|{{ 'ax'.rstrip('x') }}|{{ 'é x é'.strip('é') }}|{{ ' a '.strip(none) }}
{{ 'abc'.startswith('ab') }}{{ 'abc'.endswith(('x', 'c')) }}{{ 'abc'.startswith('') }}{{ 'abc'.removeprefix('a') }}{{ 'abc'.removesuffix('c') }}{{ 'abc'.removeprefix('x') }}
{{ 'abc'.startswith(['a']) }}
{{ 'aéa'.find('a') }}{{ 'éab'.find('b') }}{{ 'éab'.find('z') }}{{ 'aéa'.rfind('a') }}{{ 'aaa'.count('a') }}{{ 'aaa'.count('aa') }}{{ 'ab'.count('') }}{{ [1, 2, 1].count(1) }}{{ [1, 2].index(2) }}
{{ [1].index(2) }}
{{ '12'.isdigit() }}{{ '1a'.isdigit() }}{{ ''.isdigit() }}{{ 'aé'.isalpha() }}{{ 'a1'.isalnum() }}{{ ' \n'.isspace() }}
{{ 'a\nb\r\nc\n'.splitlines() }}{{ ','.join(['a', 'b']) }}{{ 'abcabc'.replace('b', 'x') }}{{ 'abcabc'.replace('b', 'x', 1) }}{{ 'aB'.upper() }}{{ 'aB'.lower() }}{{ 'aB'.capitalize() }}
{{ ','.join([1]) }}
{{ '{}-{} {{}} é'.format(1, 'x') }}{{ '{1}{0}'.format('a', 'b') }}{{ '{k}'.format(k=[1]) }}{{ ''.format() }}
{{ '{}'.format() }}
{{ '{' .format(1) }}
{% set x = numbers.append(3) %}
{{ d.update({'z': 1}) }}
{{ d.pop('b') }}
{{ numbers.append is defined }}|{{ d.update }}|{{ d.clear is defined }}
{{ n is defined }}{{ missing is undefined }}{{ nothing is none }}{{ yes is boolean }}{{ yes is true }}{{ 1 is true }}{{ false is false }}{{ 1 is integer }}{{ true is integer }}{{ 1.0 is float }}{{ true is number }}
{{ 'a' is string }}{{ d is mapping }}{{ numbers is sequence }}{{ d is sequence }}{{ 'a' is sequence }}{{ n is sequence }}{{ numbers is iterable }}{{ 'a' is iterable }}{{ n is iterable }}{{ missing is iterable }}{{ missing is sequence }}{{ d.items() is sequence }}{{ none is iterable }}{{ range is callable }}{{ (1,) is sequence }}
{{ 3 is odd }}{{ 3 is even }}{{ 6 is divisibleby 3 }}{{ 6 is divisibleby(4) }}{{ 1 is eq 1 }}{{ 1 is equalto(2) }}{{ 1 is ne 2 }}{{ 1 is lt 2 }}{{ 2 is ge 2 }}{{ 'a' is in 'abc' }}{{ 'ab' is lower }}{{ 'AB' is upper }}{{ n is not none }}{{ n is not string and true }}
{{ x is nosuchtest }}
{{ 'a' | nosuchfilter }}
{% if false %}{{ 'a' | nosuchfilter }}{% endif %}fine
{% if true %}{{ 'a' | nosuchfilter }}{% endif %}
{{ raise_exception('no ' ~ n) }}
{{ strftime_now('%Y-%m-%d %d %b %Y %A %B %H:%M:%S %j %y %%') }}
{{ dict(a=1, b=[2]) }}{{ dict({'x': 1}, y=2) }}{{ {'a': 1, 'a': 2} }}{{ {1: 'x'}[1] }}
{% nosuch %}
{% if x %}
{% for x in y %}{% endif %}
{{ x
{{ 'x }}
{{ 1 + }}
{{ (1, 2 }}
{% endif %}
{# no end
{% raw %} no end
{{ f(a=1, 2) }}
{{ x y }}
{% macro f(true) %}{% endmacro %}
{% set none = 1 %}
{% for true in [1] %}{% endfor %}
{{ [1, 2,] }}{{ {'a': 1,} }}{{ dict(a=1,) }}
{% if n == 7 %}seven{% elif n == 8 %}eight{% else %}other{% endif %}{% if n == 8 %}x{% elif n == 7 %}y{% endif %}{% if 0 %}x{% elif 0 %}y{% elif 0 %}w{% else %}z{% endif %}
{% if messages[0]['role'] == 'system' %}{% set sys = messages[0]['content'] | trim %}{% set rest = messages[1:] %}{% else %}{% set sys = '' %}{% set rest = messages %}{% endif %}{{ sys }}{{ rest | length }}{{ rest[-1].role }}
{{ bos_token }}{{ bos_token + 'x' }}{{ pad_token }}{{ add_generation_prompt }}{{ documents }}{{ eos_token | length }}
{{ messages[4].content.split('</think>')[-1].lstrip('\n') }}|{{ messages[4]['content'].split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') }}
{{ messages[2].tool_calls[0].function.arguments | tojson }}{{ messages[2].tool_calls[0].function.arguments }}{% for k, v in messages[2].tool_calls[0].function.arguments | items %}{{ k }}={{ v }};{% endfor %}
{% generation %}abc{% endgeneration %}d{% generation %}é{{ n }}{% endgeneration %}
{% for m in messages %}{{ m.role }}:{% if m.role == 'assistant' %}{% generation %}{{ m.content }}🎉{{ eos_token }}{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}
{% generation %}{% set hidden = 1 %}{% endgeneration %}{{ hidden is defined }}{% generation %}{% endgeneration %}
{% break %}
{{ loop.index }}
{{ 'a' 'b' | upper }}{{ -1 | string }}{{ (-1) | string | length }}{{ 1 + 2 | string | length }}{{ not x | length }}{{ 'ab' ~ 'c' | upper }}{{ 'x' is string and 'y' | upper == 'Y' }}
{{ [[1, 2], [3, 4]][1][0] }}{{ {'a': {'b': [5]}}.a.b[0] }}{{ ('x', 'y')[1] }}{{ 'abc'.upper()[0] }}{{ [1, 2] | first + 1 }}
{{ 1 if true }}{{ ('a' if yes else 'b') ~ 'c' }}{{ 1 if n is defined and n > 3 else 2 }}{{ n in [7] and 'yes' or 'no' }}
{{ {} }}{{ [] }}{{ () }}{{ '' }}{{ {'a': {}} | length }}{{ '}}' }}{{ "%}" }}{{ {'a': '}}'}['a'] }}
---
a{# comment #}b{#- c -#} c {#
two lines #}
d
---
  {% generation %}
  x
  {% endgeneration %}
y
---
{{- n -}}  x  {{- n }}  y  {{ n -}}
z
{%- if n %}
 a
{% endif -%}
 b
   {% if n %}
line
   {% endif %}
end
   {%+ if n %}
line
   {%+ endif %}
end
x   {% if n %}y{% endif %}
z
  {{ n }}
  {#- c -#}
  w
{% if n +%}
a
{% endif %}
{% set a = 1 %}


{% set b = 2 %}
 {{ a }}
{%- for i in range(2) -%}
  {{ i }}
{%- endfor %}
t
"""


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).replace(tzinfo=None)


def render(template, given):
    compiled = utils._compile_jinja_template(template)
    variables = {**given["strings"], **given["variables"]}
    text, places = utils._render_with_assistant_indices(
        compiled, given["messages"], given["tools"], given["documents"], given["add_generation_prompt"], **variables)
    size = lambda characters: len(text[:characters].encode())
    return text, [[size(begin), size(end)] for begin, end in places if end > begin]


def templates():
    lines, blocks = TEMPLATES.strip("\n").split("\n---\n", 1)
    yield from lines.split("\n")
    for block in blocks.split("\n---\n"):
        rows = block.split("\n")
        yield block
        yield block + "\n\n"
        yield block.replace("\n", "\r\n")
        for i in range(len(rows) - 1) if len(rows) > 9 else ():
            yield "\n".join(rows[i:i + 2])
            yield "\n".join(rows[i:i + 4]) + "\n"


def main():
    utils.datetime = Clock
    cases = []
    for template in templates():
        case = {"template": template, "input": "chat"}
        try:
            case["text"], case["spans"] = render(template, INPUTS["chat"])
        except Exception as error:
            case["error"] = type(error).__name__
        cases.append(case)
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    with open(out / "cases.json", "w", encoding="utf-8") as file:
        json.dump({"now_s": NOW, "inputs": INPUTS, "cases": cases}, file, ensure_ascii=False, indent=0)
        file.write("\n")
    print(len(cases), "cases,", sum("error" in case for case in cases), "of them errors")


if __name__ == "__main__":
    main()
