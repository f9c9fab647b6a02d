"""Letters that a person approves before they are sent: one draft for a topic, closed in two ways."""

from wtb import END, Workflow, evaluator

wf = Workflow("letters")


@wf.node
def draft(state):
    return {"draft": f"Dear all, a word about {state['topic']}."}


@wf.node
def review(state, ctx, *, closing: str = "Yours"):
    answer = ctx.ask(f"Send the letter about {state['topic']}?", options=["send", "hold back"], context=state["draft"])
    return {"letter": f"{state['draft']} {closing}" if answer.choice == "send" else ""}


review.variant("warm", closing="Warmly yours")
wf.entry(draft)
wf.edge(draft, review)
wf.edge(review, END)


@evaluator(better="higher")
def words(case, result):
    return len(result.state["letter"].split())
