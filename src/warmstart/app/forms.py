"""What answers hold. Routes name these forms, so that ``/openapi.json`` describes what is sent, and nothing else is sent."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class AnswerForm(BaseModel):
    """Fields of an answer; one that is not described is a fault of ours."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class Error(AnswerForm):
    """Why a request is refused."""

    error: str
    """in the words of the command line"""


class _Sure(AnswerForm):
    confidence: float = Field(ge=0, le=1)
    """calibrated, if the model knows its temperature"""
    abstained: bool
    """whether the confidence is below the threshold of the guarantee, or the text is blank"""


class LabelPrediction(_Sure):
    """One label for a text."""

    label: str | None
    """null: abstained"""
    probabilities: dict[str, float]
    """of the ``top`` most probable labels"""
    unknown: bool = False
    """whether the text is like none of the labels, as on average at most 5 of 100 texts of known labels are; left out by models
    that cannot tell"""


class LabelsPrediction(_Sure):
    """Any number of labels for a text."""

    labels: list[str] | None
    """those with a probability of at least a half, or that reach their thresholds; null: the text is blank"""
    probabilities: dict[str, float]
    """of the ``top`` most probable labels, each for itself"""


class NumberPrediction(AnswerForm):
    """A number for a text."""

    number: float | None
    """null: the text is blank"""


class TagsPrediction(AnswerForm):
    """A tag for each word."""

    words: list[str]
    tags: list[str | None]
    """null: the word was not read"""


class AnswerPrediction(_Sure):
    """A text that answers a question."""

    answer: str | None
    """null: abstained"""


Prediction = LabelPrediction | LabelsPrediction | NumberPrediction | TagsPrediction | AnswerPrediction
"""by the task of the model"""


class ModelAnswer(AnswerForm):
    """What every answer of a model says."""

    model: str
    """name of the model that answered"""


class Predicted(ModelAnswer):
    """``POST /api/predict``."""

    predictions: list[Prediction]
    """one for each input"""
    guarantee: str | None
    """what is guaranteed with ``target_error``, in a sentence"""
    threshold: float | None
    """the confidence below which the model abstains; null: without ``target_error``, or where it always abstains"""
    cut: str | None
    """how many inputs were too long for the model, in a sentence"""
    unread: list[int]
    """tokens (words, where words are tagged) of each input that were not read"""


class Candidate(AnswerForm):
    """A token that could have come."""

    token: str
    probability: float = Field(ge=0, le=1)


class Follower(AnswerForm):
    """A token of the corpus."""

    token: str
    count: int = Field(gt=0)


class CorpusCounts(AnswerForm):
    """What followed the same tokens in the corpus of the server."""

    context: list[str]
    """the last tokens, as many as the corpus has"""
    count: int
    """how often they were followed by anything"""
    followed: list[Follower]
    """what followed most often"""
    candidates: list[int]
    """how often each of the step's candidates did"""
    kl_divergence: float
    """of the model from the corpus, in nats"""


class GeneratedToken(AnswerForm):
    """A token of a continuation; also the data of an event ``token``."""

    text: str
    """that it adds; empty while bytes of a character are missing"""
    token: str
    probability: float = Field(ge=0, le=1)
    entropy: float
    """of what could have come, in nats"""
    candidates: list[Candidate]
    """the most probable tokens"""
    corpus: CorpusCounts | None
    """null: the server has no corpus"""


class Ended(AnswerForm):
    """The whole continuation; the data of the event ``done``."""

    text: str
    ended: bool
    """whether the model ended the text itself"""


class Generated(ModelAnswer, Ended):
    """``POST /api/generate`` without ``stream``."""

    steps: list[GeneratedToken]


class Embedded(ModelAnswer):
    """``POST /api/embed``."""

    vectors: list[list[float]]
    """one for each text"""


class Token(AnswerForm):
    """A token of a text."""

    id: int = Field(ge=0)
    token: str
    starts_word: bool


class Tokenized(ModelAnswer):
    """``POST /api/tokens``."""

    tokens: list[list[Token]]
    """of each text"""


class TrainingText(AnswerForm):
    """A training text near an input."""

    text: str | list[str]
    label: str | list[str] | float
    """of the text: several where a text may have several, a number where numbers are predicted"""
    cosine: float


class Nearest(ModelAnswer):
    """``POST /api/nearest``."""

    nearest: list[list[TrainingText]]
    """for each input, nearest first"""
    random_pairs: float
    """mean cosine of random pairs of training texts"""


class Explained(ModelAnswer):
    """``POST /api/explain``."""

    target: str
    """the label, or token, that is explained"""
    probability: float = Field(ge=0, le=1)
    words: list[str]
    importance: dict[str, list[float]]
    """by method, of each word"""
    faithfulness: dict[str, float]
    """by method: 1 is best; none of a stack, whose words are erased and no more"""
    faithfulness_of_random_orders: float | None


class Guarantee(AnswerForm):
    """An error rate that can be guaranteed."""

    target_error: float
    threshold: float
    answered: float
    """share of texts that gets a label"""


class Guarantees(ModelAnswer):
    """``GET /api/guarantees``."""

    guarantees: list[Guarantee]


class Cells(AnswerForm):
    """``POST /api/table``."""

    rows: list[list[str]]
    """the names of the columns, then the rows"""


class ServedModelFacts(AnswerForm):
    """What a model is and can do."""

    name: str
    kind: str
    """that of its head, or stack"""
    task: str | None
    """task type; null: it predicts nothing"""
    labels: list[str]
    abilities: list[str]
    calibrated: bool
    guarantees: bool
    """whether ``target_error`` may be given"""
    reads_texts: bool
    """whether it predicts from one vector of each text"""
    several_texts: bool | None
    """whether an input is a list of texts, such as a pair; null: nothing says so, and it takes both"""
    depth: int | None
    max_length: int | None
    """tokens that it reads"""


class Models(AnswerForm):
    """``GET /api/models``."""

    models: list[ServedModelFacts]


class Health(AnswerForm):
    """``GET /health``."""

    status: str
