"""Dashboard: pages that show and change queues, leases and dead letters in a browser.

`app.py` is the ASGI application. The server mounts it at `/dashboard`, and `ackwise.dashboard_app` mounts it in an
application of the user. A page reads data with `page.ask(query)` and changes data with `page.send(command)`.

How to add a page
=================

1. `pages/<noun>.py` has the functions of the page and a tuple `ROUTES`. A path is relative to the mount and has its
   parameters in braces. A parameter is one decoded segment, which may contain slashes::

        async def show(page: PageRequest) -> Response:
            groups = await page.cached(("groups",), ListGroups(limit=100))
            return page.render("groups.html.j2", groups=groups)

        ROUTES = (get("/groups", show),)

2. `pages/__init__.py` has one line that imports the module, and its name in `MODULES`.
3. `templates/<noun>.html.j2` extends `layout` and fills the blocks `title` and `content`::

        {% extends layout %}
        {% import "parts.html.j2" as ui with context %}
        {% block title %}Groups{% endblock %}
        {% block content %}
        {{ ui.heading("Groups") }}
        {% call ui.live("groups-list", "queues") %}<table>…</table>{% endcall %}
        {% endblock %}

   `pages/settings.py` with `settings.html.j2` is the smallest example.
   `page.link("queues", name)` and `link("queues", name)` in templates make the URL of a page. The first argument is the
   page, each further one is a segment. Keywords become the query string: `link("messages", queue=name)`.
   Filters in `formats.py`: `count`, `short`, `ago`, `exact`, `duration`, `size`, `rate`.
   Macros in `templates/parts.html.j2`: `name`, `ident`, `long_text`, `badge`, `state`, `tile`, `empty`, `command`,
   `filters`, `field`, `select`, `pager`.

How to show a command
=====================

`{{ ui.command(cli("message", "push", "orders", '{"a": 1}')) }}` shows a command line with a button that copies it.
`cli` quotes names for the shell and adds the URL of the server. `{% call ui.empty("No queues yet.") %}` stands for an
empty list.

How to add a form
=================

A change is a POST. `app.py` refuses a POST that `guard.py` does not allow, before your function runs::

        async def create(page: PageRequest) -> Response:
            await page.send(ConfigureQueue(queue=page.form["queue"], must_be_new=True))
            return page.redirect(page.link("queues", page.form["queue"]), "Queue created.")

        ROUTES = (post("/queues", create),)

In the template, `{{ ui.token() }}` stands inside each `<form method="post">`, and `{% if may("change") %}` around it.
A change that destroys something has a page that asks first. Answer its GET with `page.confirm(...)`, which works
without a script. `{{ ui.confirm_link(url, text) }}` opens the same page as a dialog.
An `AckwiseError` that a function raises becomes a page with the error's message and its HTTP status.

How to add a live block
=======================

`{% call ui.live(id, topics) %}…{% endcall %}` makes a block that fetches itself again when one of the topics changes.
Topics are words, separated by spaces: `queues` (any change of messages, leases or queues), `dead`, `graph`,
`pipelines`, `live.queue_topic(name)` (changes of one queue), and `clock` (every 15 seconds, for charts).
The block asks for the same URL as the page. `layout` is then only the content, without navigation. A live block must
read through `page.cached(key, query)`, so that any number of open pages costs one read per interval. It holds no form
that takes text: the page would replace the text.

How to add a chart
==================

`ackwise.wire.charts` draws SVG on the server: `timeline`, `bars`, `stacked`, `lines`. Pass the result to the template.
`series.py` draws the messages of a queue in the last hour, day or week.
"""
