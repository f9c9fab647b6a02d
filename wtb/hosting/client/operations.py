"""What a server carries out, as methods of clients: those that wait, and those that are awaited."""

from __future__ import annotations

from wtb.hosting.client.methods import async_method, method
from wtb.operations.administration.budgets import list_budgets
from wtb.operations.administration.sessions import describe_session, list_sessions
from wtb.operations.administration.tokens import list_tokens
from wtb.operations.control.answers import answer
from wtb.operations.control.breakpoints import set_breakpoints
from wtb.operations.control.pause_cancel import cancel, pause
from wtb.operations.control.questions import find_questions
from wtb.operations.control.rollback import rollback, undo_rollback
from wtb.operations.inspection.executions import diff, history, tree
from wtb.operations.inspection.log import count_events, log
from wtb.operations.inspection.sweeps import cells, list_sweeps, show, status
from wtb.operations.inspection.workflows import list_published, show_published
from wtb.operations.results.baselines import list_baselines, show_baseline
from wtb.operations.results.comparing import compare
from wtb.operations.results.costs import costs
from wtb.operations.results.matrix import matrix, report
from wtb.operations.results.series import series
from wtb.operations.running.continuing import resume, retry
from wtb.operations.running.published import plan_published, start_published, submit_published
from wtb.operations.schedules.history import history as schedule_history
from wtb.operations.schedules.schedules import list_schedules, pause_schedule, resume_schedule, show_schedule


class Operations:
    """Operations whose results are waited for. They have the names that they have of `wtb.Bench` and its handles."""

    published = method(list_published)
    published_workflow = method(show_published)
    plan_published = method(plan_published)
    submit_published = method(submit_published)
    start_published = method(start_published)
    sweeps = method(list_sweeps)
    status = method(status)
    show = method(show)
    cells = method(cells)
    log = method(log)
    count_events = method(count_events)
    history = method(history)
    tree = method(tree)
    diff = method(diff)
    matrix = method(matrix)
    report = method(report)
    compare = method(compare)
    series = method(series)
    costs = method(costs)
    baselines = method(list_baselines)
    baseline = method(show_baseline)
    questions = method(find_questions)
    answer = method(answer)
    resume = method(resume)
    retry = method(retry)
    rollback = method(rollback)
    undo_rollback = method(undo_rollback)
    pause = method(pause)
    cancel = method(cancel)
    set_breakpoints = method(set_breakpoints)
    schedules = method(list_schedules)
    schedule = method(show_schedule)
    schedule_history = method(schedule_history)
    pause_schedule = method(pause_schedule)
    resume_schedule = method(resume_schedule)
    sessions = method(list_sessions)
    session = method(describe_session)
    budgets = method(list_budgets)
    tokens = method(list_tokens)


class AsyncOperations:
    """The same operations, to be awaited."""

    published = async_method(list_published)
    published_workflow = async_method(show_published)
    plan_published = async_method(plan_published)
    submit_published = async_method(submit_published)
    start_published = async_method(start_published)
    sweeps = async_method(list_sweeps)
    status = async_method(status)
    show = async_method(show)
    cells = async_method(cells)
    log = async_method(log)
    count_events = async_method(count_events)
    history = async_method(history)
    tree = async_method(tree)
    diff = async_method(diff)
    matrix = async_method(matrix)
    report = async_method(report)
    compare = async_method(compare)
    series = async_method(series)
    costs = async_method(costs)
    baselines = async_method(list_baselines)
    baseline = async_method(show_baseline)
    questions = async_method(find_questions)
    answer = async_method(answer)
    resume = async_method(resume)
    retry = async_method(retry)
    rollback = async_method(rollback)
    undo_rollback = async_method(undo_rollback)
    pause = async_method(pause)
    cancel = async_method(cancel)
    set_breakpoints = async_method(set_breakpoints)
    schedules = async_method(list_schedules)
    schedule = async_method(show_schedule)
    schedule_history = async_method(schedule_history)
    pause_schedule = async_method(pause_schedule)
    resume_schedule = async_method(resume_schedule)
    sessions = async_method(list_sessions)
    session = async_method(describe_session)
    budgets = async_method(list_budgets)
    tokens = async_method(list_tokens)
