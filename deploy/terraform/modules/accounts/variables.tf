variable "project" {
  description = "The project's id."
  type        = string
}

variable "name" {
  description = "What the accounts' names begin with."
  type        = string
  default     = "wakeq"

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{2,20}$", var.name))
    error_message = "3 to 21 of a-z, 0-9 and -, with a letter first: an account's id has 30 at most."
  }
}

variable "operators" {
  description = "Who may show tokens of the operator's account: `user:…` and `group:…`."
  type        = set(string)
  default     = []
}

variable "kubernetes_namespace" {
  description = "GKE: the namespace of deploy/kubernetes, whose accounts may act as these; null without GKE."
  type        = string
  default     = null
}
